from __future__ import annotations

from tests.plugins.fleet.fixtures import empty_fleet, fleet_database, fleet_file, postgres_template

__all__ = ["empty_fleet", "fleet_database", "fleet_file", "postgres_template"]
