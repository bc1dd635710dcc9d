package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"salvor/config"
	"salvor/durable"
	"salvor/secret"
)

// Several processes over one database give the same bytes to machines and hosts: their images lie in one
// directory that all of them see, or are URLs.

// directoryMark is a file in the directory of images by which two processes tell that it is the same.
const directoryMark = ".directory"

// settingStore keeps what one of several processes says first.
type settingStore interface {
	GetOrCreateSecret(ctx context.Context, name string, fresh secret.Value) (secret.Value, error)
}

func imageDirectory(c *config.Config) string {
	if c.Image.Path != "" {
		return c.Image.Path
	}
	return filepath.Join(c.Default.StatePath, "images")
}

// sharedStateWarnings says what this process sees otherwise than those that share its database, a sentence each; none where all is well.
func sharedStateWarnings(ctx context.Context, c *config.Config, database settingStore) ([]string, error) {
	if isSQLite(c.Database.Connection.Reveal()) {
		return nil, nil // there is one process
	}
	dir := imageDirectory(c)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("[image]path: %w", err)
	}
	mark, err := durable.ReadOrMake(filepath.Join(dir, directoryMark), 0o600, func() ([]byte, error) { return []byte(uuid.NewString() + "\n"), nil })
	if err != nil {
		return nil, fmt.Errorf("[image]path: %w", err)
	}
	own := secret.New(strings.TrimSpace(string(mark)))
	first, err := database.GetOrCreateSecret(ctx, "image directory", own)
	if err != nil {
		return nil, err
	}
	var out []string
	if !first.Equal(own) {
		out = append(out, fmt.Sprintf("[image]path: %s is not the directory of images that the other processes of this database have: images that they took cannot be given away here. "+
			"Put it on storage that all of them share, or give images as URLs. If it is the one that is right now, all others need a copy of its file %s.", dir, directoryMark))
	}
	files := map[string]string{
		"rescue_kernel": c.Conductor.RescueKernel, "rescue_ramdisk": c.Conductor.RescueRamdisk,
		"deploy_kernel": c.Conductor.DeployKernel, "deploy_ramdisk": c.Conductor.DeployRamdisk,
	}
	for name, byArch := range map[string]map[string]string{
		"rescue_kernel_by_arch": c.Conductor.RescueKernelByArch, "rescue_ramdisk_by_arch": c.Conductor.RescueRamdiskByArch,
		"deploy_kernel_by_arch": c.Conductor.DeployKernelByArch, "deploy_ramdisk_by_arch": c.Conductor.DeployRamdiskByArch,
	} {
		for arch, file := range byArch {
			files[name+" of "+arch] = file
		}
	}
	for name, file := range files {
		if !filepath.IsAbs(file) {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			out = append(out, fmt.Sprintf("[conductor]%s: %v: who gives boot files away needs the same files at the same paths as who runs jobs, or URLs.", name, err))
		}
	}
	return out, nil
}

// warnOfUnshared says so at the start.
func (p *ControlPlane) warnOfUnshared(ctx context.Context) error {
	found, err := sharedStateWarnings(ctx, p.cfg, p.Store)
	for _, text := range found {
		p.log.Warn(text)
	}
	return err
}
