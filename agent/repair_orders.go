package agent

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"time"

	fixer "salvor/agent/repair"
	"salvor/agent/sandbox"
	"salvor/agent/step"
	rules "salvor/diagnose/system"
	"salvor/problem"
	"salvor/repair"
	mends "salvor/repair/system"
	wire "salvor/wire/agent"
)

const (
	// planTime bounds a whole plan, with the programs of the system that it runs.
	planTime = 30 * time.Minute
	// maxFindings, maxRestoreFiles and maxRestoreContent bound what a plan is asked for.
	maxFindings       = 256
	maxRestoreFiles   = 4096
	maxRestoreContent = 2 << 20
	// mostChanged bounds what a control plane may allow a repair to change, in bytes.
	mostChanged = 8 << 30
)

// SandboxCommand is the command of salvor-agent that runs a program of a system under repair. No person calls it.
const SandboxCommand = sandbox.Command

// RunInSystem runs that command and returns its exit status.
func RunInSystem(out io.Writer) int { return sandbox.RunInSystem(out) }

var repairID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// repairOrders are the commands of a repair. They share the repair whose overlays are open.
type repairOrders struct {
	*Agent
	repairer *fixer.Repairer
}

// repairCommands is the part of the table of orders that repairs.
func (a *Agent) repairCommands() map[string]step.Order {
	r := repairOrders{a, &fixer.Repairer{Log: a.log}}
	return map[string]step.Order{
		wire.PlanRepair: {Background: true, Run: r.plan, Params: []string{
			"network_data", "now", "luks_keys", "luks_keys_by_uuid", "id", "findings", "root", "consents", "restore", "max_changed",
		}},
		wire.BeforeImages:  {Unlisted: true, Params: []string{"id", "cursor"}, Run: r.images},
		wire.FileContents:  {Unlisted: true, Params: []string{"id"}, Run: r.files},
		wire.WriteRepair:   {Background: true, Params: []string{"id", "digest"}, Run: r.write},
		wire.RestoreImages: {Unlisted: true, Params: []string{"disks", "chunks", "check"}, Run: r.restore},
		wire.EndRepair:     {Params: []string{"id"}, Run: r.end},
	}
}

func idOf(p step.Params) (string, error) {
	var id string
	if err := p.Get("id", &id); err != nil {
		return "", err
	}
	if !repairID.MatchString(id) {
		return "", problem.Invalidf("parameter id: %.40q is no UUID of a repair", id)
	}
	return id, nil
}

func (r repairOrders) plan(ctx context.Context, p step.Params) (any, error) {
	q, err := planRequest(p)
	defer q.ClearKeys()
	if err != nil {
		return nil, err
	}
	if err := inRamdisk(ctx, r.config.Root, "repair"); err != nil {
		return nil, err
	}
	q.OnlyRead = true // mends act on what rules find; no checker decides about a write
	q.Rules, q.Mends, q.Finish = rules.Rules(), mends.Mends(), mends.Finish
	q.Refusals, q.RestoreRefusal = mends.Refusals, mends.RestoreRefusal
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	return r.repairer.Plan(ctx, q)
}

// planRequest reads the params of PlanRepair. The caller clears the keys, also those that come with an error.
func planRequest(p step.Params) (fixer.Request, error) {
	var q fixer.Request
	var err error
	if q.Request, err = examineRequest(p); err != nil {
		return q, err
	}
	if q.ID, err = idOf(p); err != nil {
		return q, err
	}
	var consents []string
	if err := errors.Join(p.Get("findings", &q.Findings), p.Get("root", &q.Root), p.Get("consents", &consents), p.Get("max_changed", &q.MaxChanged)); err != nil {
		return q, err
	}
	if q.Consents, err = fixer.ParseConsents(consents); err != nil {
		return q, err
	}
	if len(q.Findings) > maxFindings {
		return q, problem.Invalidf("parameter findings has %d ids; at most %d are taken", len(q.Findings), maxFindings)
	}
	if q.MaxChanged < repair.ChunkSize || q.MaxChanged > mostChanged {
		return q, problem.Invalidf("parameter max_changed: %d is not between %d and %d bytes", q.MaxChanged, repair.ChunkSize, int64(mostChanged))
	}
	q.Restore, err = restoreFiles(p)
	return q, err
}

// restoreFiles reads the files of an undo.
func restoreFiles(p step.Params) ([]fixer.RestoreFile, error) {
	var files []struct {
		Root, Path    string
		Before, After *repair.FileState
		Content       []byte
		LeftOut       string `json:"left_out"`
	}
	if err := p.Get("restore", &files); err != nil {
		return nil, err
	}
	if len(files) > maxRestoreFiles {
		return nil, problem.Invalidf("parameter restore has %d files; at most %d are taken", len(files), maxRestoreFiles)
	}
	var out []fixer.RestoreFile
	size := 0
	for _, f := range files {
		if size += len(f.Content); size > maxRestoreContent {
			return nil, problem.Invalidf("parameter restore has contents of more than %d bytes", maxRestoreContent)
		}
		for _, s := range []*repair.FileState{f.Before, f.After} {
			if s != nil && !slices.Contains([]string{"file", "link", "folder"}, s.Kind) {
				return nil, problem.Invalidf("parameter restore: %.40q is no kind of file", s.Kind)
			}
		}
		out = append(out, fixer.RestoreFile(f))
	}
	return out, nil
}

func (r repairOrders) images(_ context.Context, p step.Params) (any, error) {
	id, err := idOf(p)
	if err != nil {
		return nil, err
	}
	var cursor string
	if err := p.Get("cursor", &cursor); err != nil {
		return nil, err
	}
	return r.repairer.Images(id, cursor)
}

func (r repairOrders) files(_ context.Context, p step.Params) (any, error) {
	id, err := idOf(p)
	if err != nil {
		return nil, err
	}
	return r.repairer.Files(id)
}

func (r repairOrders) write(ctx context.Context, p step.Params) (any, error) {
	id, err := idOf(p)
	if err != nil {
		return nil, err
	}
	var digest string
	if err := p.Get("digest", &digest); err != nil {
		return nil, err
	}
	return r.repairer.Write(ctx, id, digest)
}

func (r repairOrders) restore(ctx context.Context, p step.Params) (any, error) {
	var q wire.RestoreImagesParams
	if err := errors.Join(p.Get("disks", &q.Disks), p.Get("chunks", &q.Chunks), p.Get("check", &q.Check)); err != nil {
		return nil, err
	}
	if err := inRamdisk(ctx, r.config.Root, "repair"); err != nil {
		return nil, err
	}
	return r.repairer.Restore(ctx, q)
}

func (r repairOrders) end(ctx context.Context, p step.Params) (any, error) {
	id, err := idOf(p)
	if err != nil {
		return nil, err
	}
	return nil, r.repairer.End(ctx, id)
}
