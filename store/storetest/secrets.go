package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
	"salvor/record"
	"salvor/secret"
	"salvor/store"
	"salvor/test/must"
)

// findInFiles searches all files of the database for a word.
func findInFiles(t testing.TB, dirs []string, word string) (files []string) {
	t.Helper()
	for _, dir := range dirs {
		must.OK(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // a file that went while we looked
			}
			if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(word)) {
				files = append(files, path)
			}
			return nil
		}))
	}
	return files
}

// testSecretsSealed: what is secret is in no file of the database at any time, and is read back whole.
func testSecretsSealed(b *testEnv) {
	const canary, marker = "cAnAry-7f3b9", "mArker-51c2e"
	deep := metal.Object{"redfish_address": marker, "redfish_password": canary, "number_token": 12.5,
		"list": []any{map[string]any{"snmp_community": map[string]any{"inner": canary}}, "x"},
		"fake": map[string]any{"$sealed": "not ours"}, "secret_fake": map[string]any{"$sealed": "theirs"}, "empty_password": "", "null_password": nil}
	n := b.node("a", func(n *metal.Node) {
		n.DriverInfo, n.Properties = deep, metal.Object{"admin_pass": canary, "cpu": 1.0}
		n.InstanceInfo, n.InternalInfo = metal.Object{"image_password": canary}, metal.Object{"agent_secret_token": canary}
	})
	got := must.Get(b.s.Node(b.ctx, nil, "a"))(b)
	if d := cmp.Diff(deep, got.DriverInfo); d != "" || got.Properties["admin_pass"] != canary || got.InstanceInfo["image_password"] != canary ||
		got.InternalInfo["agent_secret_token"] != canary {
		b.Fatalf("secrets are not read back:\n%s", d)
	}
	b.insert(job.Operation, "a", func(j *job.Job) { j.Secret = secret.New(canary) })
	j := b.claimOne()
	if j.Secret.Reveal() != canary {
		b.Fatal("the job's secret is not read back")
	}
	b.save(&j, true)
	b.do(func(tx job.Tx) error { return b.s.SaveNode(tx, n) })
	sealedRecords(b, canary)
	sealedCompute(b, canary)
	if b.db.Flush != nil {
		b.db.Flush(b)
	}
	if len(findInFiles(b, b.db.Dirs, marker)) == 0 {
		b.Fatal("the search finds nothing at all")
	}
	if files := findInFiles(b, b.db.Dirs, canary); len(files) != 0 {
		b.Fatalf("a secret lies in %v", files)
	}
}

// sealedRecords keeps the canary wherever records beside the node may hold a secret, and reads it back.
func sealedRecords(b *testEnv, canary string) {
	chap := metal.Object{"auth_username": canary, "auth_password": canary, "discovery_auth_username": canary, "discovery_auth_password": canary,
		"mutual_auth_username": canary, "mutual_auth_password": canary, "portals": []any{map[string]any{"auth_secret": canary}}}
	steps := []metal.Step{{Interface: "deploy", Step: "write", Args: metal.Object{"header": canary}}}
	group := &metal.Portgroup{NodeID: "a", Properties: metal.Object{"secret": canary}}
	target := &metal.Target{NodeID: "a", VolumeType: "iscsi", VolumeID: "v", Properties: chap}
	template := &metal.DeployTemplate{Name: "T", Steps: steps}
	book := &metal.Runbook{Name: "B", Steps: steps}
	rule := &metal.InspectionRule{Actions: []any{map[string]any{"args": []any{canary}}}}
	body := json.RawMessage(`{"user_data":"` + canary + `"}`)
	for range 2 {
		b.do(func(tx job.Tx) error {
			return errors.Join(insertOrSave(b.s.Portgroups(), tx, group), insertOrSave(b.s.Targets(), tx, target), insertOrSave(b.s.DeployTemplates(), tx, template),
				insertOrSave(b.s.Runbooks(), tx, book), insertOrSave(b.s.InspectionRules(), tx, rule),
				b.s.SaveDocument(tx, metal.Document{NodeID: "a", Kind: metal.ConfigDrive, Body: body}),
				b.s.SaveDocument(tx, metal.Document{NodeID: "a", Kind: metal.Steps, Body: body}),
				b.s.SaveDocument(tx, metal.Document{NodeID: "a", Kind: metal.Diagnoses, Body: body}),
				b.s.SaveDocument(tx, metal.Document{NodeID: "a", Kind: metal.Repairs, Body: body}),
				b.s.SaveRepairPart(tx, repairPart(metal.RepairPlanPart, canary)), b.s.SaveRepairPart(tx, repairPart(metal.RepairImagesPart(1), canary)),
				b.s.SaveRepairPart(tx, repairPart(metal.RepairImagesPart(2), canary)))
		})
	}
	readRepairParts(b, canary)
	sameAgain(b, b.s.Portgroups(), group)
	sameAgain(b, b.s.Targets(), target)
	sameAgain(b, b.s.DeployTemplates(), template)
	sameAgain(b, b.s.Runbooks(), book)
	sameAgain(b, b.s.InspectionRules(), rule)
	for _, kind := range []metal.DocumentKind{metal.ConfigDrive, metal.Steps, metal.Diagnoses, metal.Repairs} {
		d := must.Get(b.s.Document(b.ctx, nil, "a", kind))(b)
		if string(d.Body) != string(body) {
			b.Errorf("%s is not read back", kind)
		}
	}
}

// repairPart is a part of a repair of the node a, longer than a page of a database.
func repairPart(name, canary string) metal.RepairPart {
	return metal.RepairPart{NodeID: "a", RepairID: "r", Name: name, Body: []byte(strings.Repeat(name+" "+canary, 1000))}
}

// readRepairParts wants the parts that sealedRecords keeps.
func readRepairParts(b *testEnv, canary string) {
	b.Helper()
	for _, name := range []string{metal.RepairPlanPart, metal.RepairImagesPart(1), metal.RepairImagesPart(2)} {
		if p, err := b.s.RepairPart(b.ctx, nil, "a", "r", name); err != nil || string(p.Body) != string(repairPart(name, canary).Body) {
			b.Errorf("part %s of a repair is not read back: %v", name, err)
		}
	}
}

// insertOrSave inserts a record, and saves it the next time.
func insertOrSave[R, F any](t record.Table[R, F], tx job.Tx, r *R) error {
	h := any(r).(interface{ Head() *record.Record }).Head()
	if h.Version > 0 {
		return t.Save(tx, r)
	}
	h.ID = "secretive"
	return t.Insert(tx, r)
}

func sameAgain[R, F any](b *testEnv, t record.Table[R, F], want *R) {
	b.Helper()
	got := must.Get(t.Get(b.ctx, nil, "secretive"))(b)
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		b.Errorf("differs (-want +have):\n%s", d)
	}
}

func testWrongKey(b *testEnv) {
	if !b.db.Shared {
		b.ok(b.s.Close())
	}
	wrong := b.db
	wrong.Key = NewKey(b)
	_, err := store.Open(context.Background(), wrong.URL, wrong.Key, store.Options{})
	b.refused(err, problem.Invalid, "database: its secrets are sealed with another key than this secrets.key; start with the key file that was used with it")
	Open(b, b.db)
}

// testReopen: what was committed is there after the process, and its tables are brought up to date once.
func testReopen(b *testEnv) {
	b.node("a", func(n *metal.Node) { n.DriverInfo = metal.Object{"redfish_password": "p"} })
	b.insert(job.Operation, "a", func(j *job.Job) { j.Secret = secret.New("hash") })
	b.ok(b.s.Close())
	if err := b.s.Do(b.ctx, func(job.Tx) error { return nil }); err == nil {
		b.Fatal("a closed store takes transactions")
	}
	b.s = Open(b, b.db)
	n := must.Get(b.s.Node(b.ctx, nil, "a"))(b)
	if n.DriverInfo["redfish_password"] != "p" || n.Reservation != "salvor" {
		b.Fatalf("after a restart: %+v", n)
	}
	if b.claimOne().Secret.Reveal() != "hash" {
		b.Fatal("the job's secret is gone")
	}
}
