package nova

import (
	"net/http"

	"salvor/compute"
	"salvor/problem"
	"salvor/secret"
)

// evacuateSchema is that of every microversion. What a later one left out is refused there as anything unknown is: who still says
// that the storage is shared must not believe that it was heard.
var evacuateSchema = objectSchema(
	schemaProperty{name: "host", rule: stringSchema(1, 255)},
	schemaProperty{name: "adminPass", rule: secretSchema(1024)},
	schemaProperty{name: "onSharedStorage", until: 13, required: true, rule: booleanSchema},
	schemaProperty{name: "force", since: 29, until: 67, rule: booleanSchema},
)

// evacuate moves a server away from a host that is down. It answers 200, until 2.13 with the password.
func (c actionCall) evacuate(srv *compute.Server, args any) error {
	o := args.(jsonObject)
	shared, _ := boolOf(o["onSharedStorage"])
	force, _ := boolOf(o["force"])
	request := compute.MoveRequest{DestHost: stringProperty(o, "host"), Force: force, OnSharedStorage: shared}
	switch {
	case shared && stringProperty(o, "adminPass") != "":
		return problem.Invalidf("admin password can't be changed on existing disk")
	case force && request.DestHost == "":
		return problem.Invalidf("Can't force to a non-provided destination")
	}
	if c.Minor < 29 {
		request.Force = request.DestHost != "" // a host that was named was not judged then
	}
	password, err := c.evacuationPassword(stringProperty(o, "adminPass"), shared)
	if err != nil {
		return err
	}
	request.Password = password
	move, err := c.s.Services.Moves.Evacuate(c.R.Context(), srv.ID, request, c.requester)
	switch {
	case err != nil:
		return err
	case c.Minor >= 14 || c.s.NoPasswords:
		return c.Empty(http.StatusOK)
	case move.Disposition != compute.Reimage: // nothing was set: what it has, it keeps
		return c.json(http.StatusOK, jsonObject{"adminPass": nil})
	}
	return c.json(http.StatusOK, jsonObject{"adminPass": orNil(password.Reveal())})
}

// evacuationPassword is the password of a system that may have to be made anew: one that nobody is told is not chosen.
func (c actionCall) evacuationPassword(asked string, shared bool) (secret.Value, error) {
	if asked == "" && (shared || c.Minor >= 14) {
		return secret.Value{}, nil
	}
	request := compute.Creation{}
	err := c.choosePassword(&request, asked)
	return request.Password, err
}

var (
	migrateSchema = func(at string, v any, minor int) error {
		if minor < 56 {
			return nil // there was nothing to ask for, and nothing was looked at
		}
		return nullableSchema(objectSchema(schemaProperty{name: "host", rule: nullableSchema(stringSchema(1, 255))}))(at, v, minor)
	}
	migrateLiveSchema = objectSchema(
		schemaProperty{name: "host", required: true, rule: nullableSchema(stringSchema(1, 255))},
		schemaProperty{name: "block_migration", required: true, rule: func(at string, v any, minor int) error {
			if v == "auto" && minor >= 25 {
				return nil
			}
			return booleanSchema(at, v, minor)
		}},
		schemaProperty{name: "disk_over_commit", until: 24, required: true, rule: booleanSchema},
		schemaProperty{name: "force", since: 30, until: 67, rule: booleanSchema},
	)
)

// migrate moves a server whose host lives: off, elsewhere, on again.
func (c actionCall) migrate(srv *compute.Server, args any) error {
	o, _ := args.(jsonObject)
	request := compute.MigrationRequest{}
	if c.Minor >= 56 {
		request.DestHost = stringProperty(o, "host")
	}
	return c.moveAway(srv, request)
}

// migrateLive moves a server while it runs. salvor copies no disks: a block migration of a server with local disks is refused.
func (c actionCall) migrateLive(srv *compute.Server, args any) error {
	o := args.(jsonObject)
	request := compute.MigrationRequest{DestHost: stringProperty(o, "host"), Live: true}
	if block, _ := boolOf(o["block_migration"]); block && compute.NeedsOf(srv, "").Disk > 0 {
		return problem.Invalidf("Block migration of instance %s is not supported: disks are not copied to another host. Migrate it with block_migration false or \"auto\", "+
			"which needs its disks in a store that both hosts share.", srv.ID)
	}
	force, _ := boolOf(o["force"])
	if force && request.DestHost == "" {
		return problem.Invalidf("Can't force to a non-provided destination")
	}
	request.Force = request.DestHost != "" && (force || c.Minor < 30) // a host that was named was not judged then
	return c.moveAway(srv, request)
}

func (c actionCall) moveAway(srv *compute.Server, request compute.MigrationRequest) error {
	_, err := c.s.Services.Moves.Migrate(c.R.Context(), srv.ID, request, c.requester)
	switch {
	case problem.Is(err, problem.NotFound) && request.DestHost != "": // the path itself was found
		return problem.Invalidf("Compute host %s could not be found.", truncateText(request.DestHost))
	case err != nil:
		return err
	}
	return c.Empty(http.StatusAccepted)
}
