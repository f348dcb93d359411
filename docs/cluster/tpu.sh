#!/bin/bash
# Trains on all hosts of a TPU slice, which has xsim and jax[tpu] installed. Run it again and it continues from its last checkpoint.
#
#     NAME=my-tpu ZONE=us-west4-a OUT=/mnt/shared/cheetah bash tpu.sh half_cheetah --num-envs 65536
set -euo pipefail

# OUT lies in a file system that all hosts see. The hosts run the text; the arguments of this script become part of it.
command=$(printf '%q ' "$@")
gcloud compute tpus tpu-vm ssh "$NAME" --zone "$ZONE" --worker=all --command "
if compgen -G '$OUT/checkpoint-*' >/dev/null; then arguments=(--resume); else arguments=($command); fi
python3 -m xsim.train \"\${arguments[@]}\" --out '$OUT' --distributed"
