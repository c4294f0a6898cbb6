#!/bin/sh
# Creates the namespace and registers Ferrata's search attributes, where they aren't there yet. The server is named by
# TEMPORAL_ADDRESS, the namespace by TEMPORAL_NAMESPACE. RETENTION: how long closed runs are kept (default 7 days).
set -eu

attempt=0
until temporal operator cluster health >/dev/null; do
  attempt=$((attempt + 1))
  [ "$attempt" -lt 30 ] || { echo "no healthy server at $TEMPORAL_ADDRESS" >&2; exit 1; }
  sleep 2
done

temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1 ||
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "${RETENTION:-7d}"

# A new namespace takes a few seconds to be known everywhere in the cluster.
attempt=0
until known=$(temporal operator search-attribute list 2>/dev/null); do
  attempt=$((attempt + 1))
  [ "$attempt" -lt 30 ] || { echo "namespace $TEMPORAL_NAMESPACE doesn't answer" >&2; exit 1; }
  sleep 1
done

register() {
  echo "$known" | grep -qw "$1" || temporal operator search-attribute create --name "$1" --type "$2"
}

register FerrataGraph Keyword
register FerrataStatus Keyword
register FerrataEscalations Int
