package store_test

import (
	"os"
	"testing"

	"salvor/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func TestSQLite(t *testing.T) { storetest.Run(t, storetest.OnSQLite) }

func TestPostgres(t *testing.T) { storetest.Run(t, storetest.OnPostgres) }
