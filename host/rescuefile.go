package host

import (
	"context"

	"salvor/compute"
	"salvor/problem"
)

// maxFiles bounds one search for files of rescue images.
const maxFiles = 16

// findFiles tells which files this host has not among its rescue images. What cannot be read as one is missing, too.
func (w *orderExecution) findFiles(ctx context.Context) (compute.Result, error) {
	if len(w.args.Files) > maxFiles {
		return compute.Result{}, problem.Invalidf("at most %d files are looked for at once", maxFiles)
	}
	return runWithContext(ctx, func() (r compute.Result, err error) {
		for _, file := range w.args.Files {
			if _, err := w.rescuePath(ctx, &rescueFile{location: file, local: true}); err != nil {
				r.Missing = append(r.Missing, file)
			}
		}
		return r, nil
	})
}
