"""The command line as a file, which commands in several processes start again."""

from cscct.cli import main

if __name__ == "__main__":
    main()
