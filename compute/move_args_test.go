package compute

import (
	"encoding/json"
	"testing"

	"salvor/secret"
	"salvor/test/must"
)

// A job's arguments are shown to administrators; what the job must not show travels beside them.
func TestMoveArgsLeaveTheSecretOut(t *testing.T) {
	raw := must.Get(json.Marshal(MoveArgs{MoveID: "m", Hidden: secret.New("s3cret")}))(t)
	if want := `{"move":"m"}`; string(raw) != want {
		t.Errorf("the arguments are %s, expected %s", raw, want)
	}
}
