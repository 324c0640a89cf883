"""Names of the forms that a loss can take. Here, because the settings know them too and do without torch."""

from typing import Literal

CTForm = Literal["official", "batchmean", "paper", "literal"]
NCAForm = Literal["official", "paper"]
