"""Where every command is registered."""

from tyro.extras import SubcommandApp

app = SubcommandApp()
