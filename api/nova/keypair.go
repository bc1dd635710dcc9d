package nova

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net/http"
	"strings"

	"golang.org/x/crypto/ssh"

	"salvor/compute"
	"salvor/problem"
	"salvor/record"
)

func (s *apiServer) keypairRoutes() []versionedRoute {
	return []versionedRoute{
		{method: "GET", path: "/os-keypairs", need: reader, do: handlerOf(keypairCall.listKeypairs)},
		{method: "POST", path: "/os-keypairs", need: member, do: handlerOf(keypairCall.createKeypair)},
		{method: "GET", path: "/os-keypairs/{keypair}", need: reader, do: handlerOf(keypairCall.getKeypair)},
		{method: "DELETE", path: "/os-keypairs/{keypair}", need: member, do: handlerOf(keypairCall.removeKeypair)},
	}
}

// owner is whose keypairs are meant: those of whoever asks, or of the user whom an administrator names.
func (c keypairCall) owner(named string) (string, error) {
	if named == "" || named == c.user || c.Minor < 10 {
		return c.user, nil
	}
	if !c.admin {
		return "", problem.Forbiddenf(policyForbidden, "os_compute_api:os-keypairs:index")
	}
	return named, nil
}

func (c keypairCall) keypairView(k *compute.Keypair) jsonObject {
	o := jsonObject{"name": k.Name, "public_key": k.PublicKey, "fingerprint": k.Fingerprint}
	if c.Minor >= 2 {
		o["type"] = k.Type
	}
	return o
}

func (c keypairCall) listKeypairs() error {
	known := []string{"user_id", "limit", "marker"}
	if err := c.only(75, known...); err != nil {
		return err
	}
	user, err := c.owner(c.Query.Get("user_id"))
	if err != nil {
		return err
	}
	f, p := compute.KeypairFilter{User: user}, record.Page{SortKey: "name", Limit: c.s.MaxLimit}
	if c.Minor >= 35 {
		limit, err := c.number("limit", p.Limit)
		if err != nil {
			return err
		}
		if limit > 0 {
			p.Limit = min(p.Limit, limit)
		}
		if marker := c.Query.Get("marker"); marker != "" {
			at, err := c.keypair(marker, user)
			if problem.Is(err, problem.NotFound) {
				return noMarker(marker)
			}
			if err != nil {
				return err
			}
			p.Marker = at.ID
		}
	}
	all, err := c.s.Services.Keypairs.List(c.R.Context(), f, p)
	if err != nil {
		return err
	}
	out := []jsonObject{}
	for _, k := range all {
		out = append(out, jsonObject{"keypair": c.keypairView(k)})
	}
	answer := jsonObject{"keypairs": out}
	if len(all) > 0 && c.Minor >= 35 {
		if next := c.next("/os-keypairs", len(all), p.Limit, all[len(all)-1].Name); next != nil {
			answer["keypairs_links"] = next
		}
	}
	return c.json(http.StatusOK, answer)
}

// keypair finds a user's keypair by its name.
func (c keypairCall) keypair(name, user string) (*compute.Keypair, error) {
	gone := problem.NotFoundf("Keypair %s not found for user %s", truncateText(name), user)
	if name == "" || len(name) > maxIdent {
		return nil, gone
	}
	all, err := c.s.Services.Keypairs.List(c.R.Context(), compute.KeypairFilter{User: user, Name: name}, record.Page{})
	if err != nil {
		return nil, err
	}
	for _, k := range all { // where nobody authenticates, an empty user does not narrow
		if k.User == user {
			return k, nil
		}
	}
	return nil, gone
}

var keypairSchema = objectSchema(
	schemaProperty{name: "name", required: true, rule: patternSchema(1, 255, `^[\w@.\- ]+$`)}, schemaProperty{name: "public_key", rule: nullableSchema(stringSchema(0, 16384))},
	schemaProperty{name: "type", since: 2, rule: oneOf("ssh", "x509")}, schemaProperty{name: "user_id", since: 10, rule: stringSchema(1, 255)},
)

// createKeypair keeps a public key. Where none is given it makes a pair, and tells the private key in this one answer.
func (c keypairCall) createKeypair() error {
	body, err := c.body("keypair", keypairSchema)
	if err != nil {
		return err
	}
	user, err := c.owner(stringProperty(body, "user_id"))
	if err != nil {
		return err
	}
	k := &compute.Keypair{User: user, Name: stringProperty(body, "name"), Type: "ssh", PublicKey: strings.TrimSpace(stringProperty(body, "public_key"))}
	if stringProperty(body, "type") == "x509" {
		return problem.Invalidf("Keypair data is invalid: keypairs of type x509 are not supported")
	}
	private := ""
	if k.PublicKey == "" {
		if k.PublicKey, private, err = generateKeyPair(); err != nil {
			return err
		}
	}
	if err := c.s.Services.Keypairs.Create(c.R.Context(), k, c.requester.Asker); err != nil {
		return err
	}
	o := c.keypairView(k)
	o["user_id"] = k.User
	if private != "" {
		o["private_key"] = private
	}
	status := http.StatusOK
	if c.Minor >= 2 {
		status = http.StatusCreated
	}
	return c.json(status, jsonObject{"keypair": o})
}

// generateKeyPair makes an ssh key pair; the private key is in OpenSSH's form.
func generateKeyPair() (public, private string, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		return "", "", err
	}
	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", "", err
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), string(pem.EncodeToMemory(block)), nil
}

// keypairOfPath finds the keypair that the path names.
func (c keypairCall) keypairOfPath() (*compute.Keypair, error) {
	user, err := c.owner(c.Query.Get("user_id"))
	if err != nil {
		return nil, err
	}
	return c.keypair(c.Arg("keypair"), user)
}

func (c keypairCall) getKeypair() error {
	k, err := c.keypairOfPath()
	if err != nil {
		return err
	}
	marks, err := c.s.Services.Keypairs.Marks(c.R.Context(), compute.KeypairFilter{User: k.User, Name: k.Name}, record.Page{})
	if err != nil {
		return err
	}
	o := c.keypairView(k)
	for _, m := range marks {
		if m.ID == k.ID {
			o["id"] = m.Num
		}
	}
	o["user_id"], o["deleted"], o["deleted_at"], o["updated_at"] = k.User, false, nil, nil
	o["created_at"] = timeOrNil(k.CreatedAt)
	return c.json(http.StatusOK, jsonObject{"keypair": o})
}

func (c keypairCall) removeKeypair() error {
	k, err := c.keypairOfPath()
	if err != nil {
		return err
	}
	if err := c.s.Services.Keypairs.Remove(c.R.Context(), k.ID, c.requester.Asker); err != nil {
		return err
	}
	status := http.StatusAccepted
	if c.Minor >= 2 {
		status = http.StatusNoContent
	}
	return c.Empty(status)
}
