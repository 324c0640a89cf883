from cscct.cli import main

main()
