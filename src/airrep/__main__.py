"""`python -m airrep`, and `torchrun -m airrep`."""

from airrep.cli.app import main

if __name__ == "__main__":
    main()
