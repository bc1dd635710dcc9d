package redfish

import (
	"context"

	"salvor/driver"
	"salvor/driver/redfish/conversation"
	"salvor/driver/redfish/memory"
	"salvor/metal"
	"salvor/problem"
)

// bmcSession is what one operation needs to speak with a BMC. No login outlives its operation for long: BMCs hold a handful of sessions and
// forget them slowly.
type bmcSession struct {
	bmc     *conversation.Conversation
	conf    *redfishSettings
	key     memory.Key
	infos   *actionInfoMemo
	intents *updateIntents
	system  string // path of the ComputerSystem, once found
}

// with runs an operation in a conversation with the node's BMC and names both in the error.
func (d *Driver) with(ctx context.Context, n *metal.Node, op string, fn func(*bmcSession) error) error {
	conf, err := parseDriverInfo(n)
	if err != nil {
		return problem.New(problem.KindOf(err), "%s of node %s: redfish: %w", op, n.ID, err)
	}
	s := &bmcSession{conf: conf, key: memory.NewKey(n.ID, n.Driver, n.DriverInfo), infos: &d.infos, intents: &d.intents}
	if idle := d.Sessions.take(s.key); idle != nil {
		s.bmc = idle.Resume(ctx)
	} else {
		s.bmc, err = d.open(ctx, s)
	}
	if err == nil {
		if err = fn(s); err == nil {
			d.Sessions.put(s.bmc)
		} else {
			s.bmc.Close()
		}
	}
	if err != nil {
		return problem.New(problem.KindOf(err), "%s of node %s: redfish %s: %w", op, n.ID, conf.base.Host, err)
	}
	return nil
}

func (d *Driver) open(ctx context.Context, s *bmcSession) (*conversation.Conversation, error) {
	conf := s.conf
	return conversation.Open(ctx, conversation.Settings{
		Base: conf.base, TLS: conf.tls, Auth: conf.auth, AuthKey: AuthKey, Locks: d.Locks, Logins: d.Logins, Control: d.Control, Explain: refusedTLS, Memory: &d.memory, Key: s.key,
		Login: driver.Login{Address: conf.base.Host, Username: conf.username, Password: conf.password, UsernameKey: conf.usernameKey, PasswordKey: conf.passwordKey},
	})
}
