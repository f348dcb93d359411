#!/bin/bash
# Trains on the GPUs of several nodes, one process per GPU. Submit it again and it continues from its last checkpoint.
#
#     sbatch slurm.sh half_cheetah --num-envs 65536
#
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail

out=${OUT:-runs/$1} # in a file system that all nodes see
if compgen -G "$out/checkpoint-*" >/dev/null; then
    arguments=(--resume)
else
    arguments=("$@")
fi
srun python -m xsim.train "${arguments[@]}" --out "$out" --distributed
