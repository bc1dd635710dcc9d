package main

import (
	"context"
	"log/slog"

	"salvor/config"
	"salvor/problem"
)

func serveSite(context.Context, *config.Config, *slog.Logger) error {
	return problem.Unsupportedf("not yet")
}
