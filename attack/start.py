"""Entry point of the command line as a file, for commands that start several processes."""

from cscct.cli import main

if __name__ == "__main__":
    main()
