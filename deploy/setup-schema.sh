#!/bin/sh
# Creates Temporal's two databases on PostgreSQL, or brings their schema up to this server version.
set -eu

schemas=/etc/temporal/schema/postgresql/v12

tool() {
  database=$1
  shift
  temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" -p "$DB_PORT" -u "$POSTGRES_USER" --db "$database" "$@"
}

for store in temporal visibility; do
  database=temporal
  [ "$store" = temporal ] || database=temporal_$store
  tool "$database" create
  tool "$database" setup-schema -v 0.0
  tool "$database" update-schema -d "$schemas/$store/versioned"
done
