"""``python -m xsim.train TASK``: see `xsim.train`."""

import sys

from xsim.dynamics.sharding import use_cores
from xsim.train.run import main

use_cores()
sys.exit(main())
