package compute

import (
	"encoding/json"
	"testing"

	"salvor/secret"
)

// A job's arguments are shown to administrators; what the job must not show travels beside them.
func TestMoveArgsLeaveTheSecretOut(t *testing.T) {
	raw, err := json.Marshal(MoveArgs{MoveID: "m", Hidden: secret.New("s3cret")})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"move":"m"}`; string(raw) != want {
		t.Errorf("the arguments are %s, expected %s", raw, want)
	}
}
