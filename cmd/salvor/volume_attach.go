package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"salvor/client"
	"salvor/cmd/salvor/kit"
	"salvor/problem"
)

// The standalone steps of the volume specification: the initiator's names come from salvor, a storage system
// makes an export for them, and the target goes back to salvor. One that fails leaves neither export nor target.

// undoTimeout bounds taking an export back, which is done even where the command was interrupted.
const undoTimeout = time.Minute

// sourceKey is where a target's extra says who made its export, and so who takes it back.
const sourceKey = "salvor_source"

// volumeAsk is what a storage system is asked to do.
type volumeAsk struct {
	Action     string          `json:"action"` // attach or detach
	Node       nodeName        `json:"node"`
	Connectors []connectorName `json:"connectors"`
	VolumeID   string          `json:"volume_id,omitempty"`
	BootIndex  int             `json:"boot_index"`
	// Target is what attach gave, for detach.
	Target *volumeTarget `json:"target,omitempty"`
}

type nodeName struct {
	UUID string `json:"uuid"`
	Name string `json:"name,omitempty"`
}

type connectorName struct {
	Type        string `json:"type"`
	ConnectorID string `json:"connector_id"`
}

// volumeTarget is an export: where the node finds its disk.
type volumeTarget struct {
	VolumeType string         `json:"volume_type"`
	VolumeID   string         `json:"volume_id"`
	Properties map[string]any `json:"properties"`
	// Extra is kept with the target and comes back with detach.
	Extra map[string]any `json:"extra,omitempty"`
}

// storageSource makes and takes back exports.
type storageSource interface {
	attach(ctx context.Context, ask volumeAsk) (volumeTarget, error)
	// detach takes an export back. One that is not there any more is success.
	detach(ctx context.Context, ask volumeAsk) error
	// owns refuses a target that attach did not make: what is registered can be changed by others.
	owns(t *volumeTarget) error
}

// volumeFlags are those of attach and detach.
type volumeFlags struct {
	source    string
	volumeID  string
	bootIndex int
	tgt       tgtSource
}

func (v *volumeFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&v.source, "source", "", "the maker of the export: tgt, or a program that speaks JSON (docs/volumes.md)")
	f.StringVar(&v.volumeID, "volume-id", "", "id of the volume (default: chosen by the source)")
	f.IntVar(&v.bootIndex, "boot-index", 0, "0 is the root drive; higher numbers are further drives")
	v.tgt.flags(f)
	_ = cmd.MarkFlagRequired("source")
}

func (v *volumeFlags) open(cmd *cobra.Command) (storageSource, error) {
	if v.source != "tgt" {
		return commandSource{program: v.source}, nil
	}
	if cmd.Name() == "attach" && (v.tgt.backing == "" || v.tgt.portal == "") {
		return nil, kit.UsageErrorf(cmd, "--source tgt needs --backing and --portal")
	}
	return &v.tgt, nil
}

// newVolumeAttach is `salvor volume attach`.
func newVolumeAttach(e *kit.Endpoint) *cobra.Command {
	var v volumeFlags
	cmd := &cobra.Command{
		Use: "attach NODE --source tgt|COMMAND", Short: "Export a volume to a node's initiator and register it as a volume target", Args: cobra.ExactArgs(1),
		Example: "  salvor volume attach m1 --source tgt --backing /srv/m1.img --portal 10.0.0.5:3260\n  salvor volume attach m1 --source ./my-array --volume-id vol-7",
		RunE:    e.Run(v.attach),
	}
	v.flags(cmd)
	return cmd
}

// newVolumeDetach is `salvor volume detach`.
func newVolumeDetach(e *kit.Endpoint) *cobra.Command {
	var v volumeFlags
	cmd := &cobra.Command{
		Use: "detach NODE --source tgt|COMMAND", Short: "Remove a node's volume target, and its export", Args: cobra.ExactArgs(1),
		Example: "  salvor volume detach m1 --source tgt",
		RunE:    e.Run(v.detach),
	}
	v.flags(cmd)
	return cmd
}

// ask reads what the storage system has to know of the node.
func (v *volumeFlags) ask(c *kit.Call, action string) (volumeAsk, error) {
	ask := volumeAsk{Action: action, VolumeID: v.volumeID, BootIndex: v.bootIndex}
	n, err := c.API.Node(c.Context(), c.Args[0])
	if err != nil {
		return ask, err
	}
	ask.Node = nodeName{UUID: n.UUID, Name: n.Name}
	all, err := c.API.List(c.Context(), client.VolumeConnectors, client.Query{Filter: url.Values{"node": {n.UUID}}})
	if err != nil {
		return ask, err
	}
	for _, r := range all {
		ask.Connectors = append(ask.Connectors, connectorName{r.Text("type"), r.Text("connector_id")})
	}
	return ask, nil
}

func (v *volumeFlags) attach(c *kit.Call) error {
	source, err := v.open(c.Command)
	if err != nil {
		return err
	}
	ask, err := v.ask(c, "attach")
	if err != nil {
		return err
	}
	if len(ask.Connectors) == 0 {
		return problem.Invalidf("node %s has no volume connector: storage cannot know its initiator (salvor volume connector create)", c.Args[0])
	}
	// The index is looked at first: an export that nobody could register is not even made.
	if taken, err := v.find(c.Context(), c, ask.Node.UUID); err != nil || len(taken) > 0 {
		if err == nil {
			err = problem.Conflictf("node %s has a volume target with boot index %d already: %s", c.Args[0], v.bootIndex, taken[0].Text("uuid"))
		}
		return err
	}
	target, err := source.attach(c.Context(), ask)
	if err != nil {
		return fmt.Errorf("export a volume for node %s: %w", c.Args[0], err)
	}
	extra := map[string]any{sourceKey: v.source}
	maps.Copy(extra, target.Extra)
	made, err := c.API.Create(c.Context(), client.VolumeTargets, client.Record{
		"node_uuid": ask.Node.UUID, "volume_type": target.VolumeType, "volume_id": target.VolumeID,
		"boot_index": v.bootIndex, "properties": target.Properties, "extra": extra,
	})
	if err != nil {
		ask.Action, ask.Target = "detach", &target
		return v.takeBack(c, source, ask, err)
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), kit.StripControlChars(made.Text("uuid")))
	return err
}

// takeBack leaves neither export nor target of an attach that failed. A request without an answer may have
// made the target all the same.
func (v *volumeFlags) takeBack(c *kit.Call, source storageSource, ask volumeAsk, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), undoTimeout)
	defer cancel()
	if problem.Is(err, problem.Unavailable) {
		made, lost := v.find(ctx, c, ask.Node.UUID)
		for _, r := range made {
			if r.Text("volume_id") == ask.Target.VolumeID {
				lost = c.API.Delete(ctx, client.VolumeTargets, r.Text("uuid"))
			}
		}
		if lost != nil {
			err = errors.Join(err, fmt.Errorf("and whether a target was made is not known: %w", lost))
		}
	}
	if undo := source.detach(ctx, ask); undo != nil {
		err = errors.Join(err, fmt.Errorf("and the export could not be taken back: %w", undo))
	}
	return err
}

// find reads the node's targets with the boot index.
func (v *volumeFlags) find(ctx context.Context, c *kit.Call, node string) ([]client.Record, error) {
	return c.API.List(ctx, client.VolumeTargets, client.Query{
		Filter: url.Values{"node": {node}, "boot_index": {fmt.Sprint(v.bootIndex)}}, Detail: true,
	})
}

// detach takes the target away first: a machine that still had it would find no disk.
func (v *volumeFlags) detach(c *kit.Call) error {
	source, err := v.open(c.Command)
	if err != nil {
		return err
	}
	ask, err := v.ask(c, "detach")
	if err != nil {
		return err
	}
	found, err := v.find(c.Context(), c, ask.Node.UUID)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return problem.NotFoundf("node %s has no volume target with boot index %d", c.Args[0], v.bootIndex)
	}
	r := found[0]
	extra, _ := r["extra"].(map[string]any)
	if by, _ := extra[sourceKey].(string); by != v.source {
		return problem.Invalidf("volume target %s was not made by source %q: use salvor volume target delete", r.Text("uuid"), v.source)
	}
	properties, _ := r["properties"].(map[string]any)
	ask.VolumeID = r.Text("volume_id")
	ask.Target = &volumeTarget{VolumeType: r.Text("volume_type"), VolumeID: ask.VolumeID, Properties: properties, Extra: extra}
	if err := source.owns(ask.Target); err != nil {
		return fmt.Errorf("volume target %s: %w", r.Text("uuid"), err)
	}
	if err := c.API.Delete(c.Context(), client.VolumeTargets, r.Text("uuid")); err != nil {
		return err
	}
	if err := source.detach(c.Context(), ask); err != nil {
		return fmt.Errorf("the target is gone, but its export could not be taken back: %w", err)
	}
	return nil
}
