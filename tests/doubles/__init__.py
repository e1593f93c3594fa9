"""Stand-ins for services, where no emulator can show the case."""
