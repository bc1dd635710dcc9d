"""Makes the tables of Neutron in an SQLite file, then is neutron-server."""
import sys

import sqlalchemy

from neutron.db.migration.models import head

database, config = sys.argv[1:]
head.get_metadata().create_all(sqlalchemy.create_engine("sqlite:///" + database))

from neutron.cmd.eventlet.server import main  # noqa: E402

sys.argv = ["neutron-server", "--config-file", config]
main()
