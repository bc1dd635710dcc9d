package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"salvor/job"
	"salvor/metal"
	"salvor/problem"
)

var contactFields = []string{"node_id", "agent_url", "agent_version", "agent_ca", "agent_status", "agent_status_message", "agent_boot",
	"heartbeat_at", "token_told", "lookup_at", "power_read", "power_read_at", "power_failures", "power_error", "power_failed_at", "power_refused"}

var (
	selectContacts = `SELECT ` + strings.Join(contactFields, ", ") + `, dhcp_at, dhcp_word, boot_at, boot_word,
		refused_boot, refused_count, refused_at, refused_reason, unproven_count, revision FROM contact`
	upsertContact = upsertContactText()
)

// upsertContactText writes the whole row; only the mark of a told token never goes
// back, because whoever read the row before lookup set it would tell the token again.
func upsertContactText() string {
	var sets []string
	for _, f := range contactFields[1:] {
		value := "excluded." + f
		if f == "token_told" {
			value = "CASE WHEN excluded.token_told > contact.token_told THEN excluded.token_told ELSE contact.token_told END"
		}
		sets = append(sets, f+" = "+value)
	}
	return `INSERT INTO contact (` + strings.Join(contactFields, ", ") + `, revision) VALUES (` + sqlPlaceholders(1, len(contactFields)) + `, 1)
		ON CONFLICT (node_id) DO UPDATE SET ` + strings.Join(sets, ", ") + `, revision = contact.revision + 1`
}

// Contact is metal.ContactStore's.
func (s nodeTables) Contact(ctx context.Context, t job.Tx, nodeID string) (metal.Contact, error) {
	found := map[string]metal.Contact{}
	if err := s.contacts(ctx, t, found, selectContacts+` WHERE node_id = $1`, nodeID); err != nil {
		return metal.Contact{}, err
	}
	c := found[nodeID]
	c.NodeID = nodeID
	return c, nil
}

// contactSlice is how many nodes one query of Contacts names.
const contactSlice = 500

// Contacts is metal.ContactStore's; nodes without a row have no entry.
func (s nodeTables) Contacts(ctx context.Context, nodeIDs []string) (map[string]metal.Contact, error) {
	out := make(map[string]metal.Contact, len(nodeIDs))
	for len(nodeIDs) > 0 {
		n := min(len(nodeIDs), contactSlice)
		c := &whereClause{}
		if err := s.contacts(ctx, nil, out, selectContacts+` WHERE `+c.in("node_id", nodeIDs[:n]), c.args...); err != nil {
			return nil, err
		}
		nodeIDs = nodeIDs[n:]
	}
	return out, nil
}

func (s nodeTables) contacts(ctx context.Context, t job.Tx, out map[string]metal.Contact, text string, args ...any) error {
	err := s.read(ctx, t, func(r *sql.Rows) error {
		var c metal.Contact
		var heartbeat, lookup, power, failed, dhcp, boot, refused int64
		err := r.Scan(&c.NodeID, &c.AgentURL, &c.AgentVersion, &c.AgentCA, &c.AgentStatus, &c.AgentStatusMessage, &c.AgentBoot,
			&heartbeat, &c.TokenTold, &lookup, &c.PowerRead, &power, &c.PowerFailures, &c.PowerError, &failed, &c.PowerRefused,
			&dhcp, &c.DHCPWord, &boot, &c.BootWord,
			&c.RefusedBoot, &c.Refused, &refused, &c.RefusedReason, &c.Unproven, &c.Revision)
		c.DHCPAt, c.BootAt, c.RefusedAt = fromMicros(dhcp), fromMicros(boot), fromMicros(refused)
		c.HeartbeatAt, c.LookupAt, c.PowerReadAt, c.PowerFailedAt = fromMicros(heartbeat), fromMicros(lookup), fromMicros(power), fromMicros(failed)
		out[c.NodeID] = c
		return err
	}, text, args...)
	if err != nil {
		return fmt.Errorf("read contacts: %w", err)
	}
	return nil
}

// SaveContact is metal.ContactStore's; problem.NotFound if the node is gone.
func (s nodeTables) SaveContact(t job.Tx, c metal.Contact) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	_, err = tx.exec(upsertContact, c.NodeID, c.AgentURL, c.AgentVersion, c.AgentCA, c.AgentStatus, c.AgentStatusMessage, c.AgentBoot,
		toMicros(c.HeartbeatAt), c.TokenTold, toMicros(c.LookupAt), string(c.PowerRead), toMicros(c.PowerReadAt), c.PowerFailures, c.PowerError,
		toMicros(c.PowerFailedAt), c.PowerRefused)
	return s.contactRefused(err, c.NodeID)
}

// AgentContact is metal.ContactStore's.
func (s nodeTables) AgentContact(ctx context.Context, nodeID string) (version int64, c metal.Contact, err error) {
	c.NodeID = nodeID
	err = s.read(ctx, nil, func(r *sql.Rows) error {
		return r.Scan(&version, &c.AgentBoot, &c.AgentURL, &c.AgentVersion, &c.AgentCA, &c.AgentStatus, &c.AgentStatusMessage)
	}, `SELECT n.version, k.agent_boot, k.agent_url, k.agent_version, k.agent_ca, k.agent_status, k.agent_status_message
		FROM node n JOIN contact k ON k.node_id = n.id WHERE n.id = $1`, nodeID)
	if err != nil {
		return 0, c, fmt.Errorf("read the word of node %s: %w", nodeID, err)
	}
	return version, c, nil
}

// SaveHeartbeats is metal.ContactStore's.
func (s nodeTables) SaveHeartbeats(ctx context.Context, beats []metal.HeartbeatTime) error {
	err := s.Do(ctx, func(t job.Tx) error {
		tx, err := s.tx(t)
		for _, b := range beats {
			if err == nil {
				_, err = tx.exec(`UPDATE contact SET heartbeat_at = $2, revision = revision + 1 WHERE node_id = $1 AND agent_boot = $3 AND heartbeat_at < $2`,
					b.NodeID, toMicros(b.At), b.Boot)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write the times of heartbeats: %w", err)
	}
	return nil
}

// SaveSeen is metal.ContactStore's. A node that is gone has no row to take it from.
func (s nodeTables) SaveSeen(t job.Tx, nodeID string, progress metal.BootProgress) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	_, err = tx.exec(`INSERT INTO contact (node_id, dhcp_at, dhcp_word, boot_at, boot_word) SELECT id, $2, $3, $4, $5 FROM node WHERE id = $1
		ON CONFLICT (node_id) DO UPDATE SET
			dhcp_word = CASE WHEN excluded.dhcp_at > contact.dhcp_at THEN excluded.dhcp_word ELSE contact.dhcp_word END,
			dhcp_at = CASE WHEN excluded.dhcp_at > contact.dhcp_at THEN excluded.dhcp_at ELSE contact.dhcp_at END,
			boot_word = CASE WHEN excluded.boot_at > contact.boot_at THEN excluded.boot_word ELSE contact.boot_word END,
			boot_at = CASE WHEN excluded.boot_at > contact.boot_at THEN excluded.boot_at ELSE contact.boot_at END`,
		nodeID, toMicros(progress.DHCPAt), progress.DHCPWord, toMicros(progress.BootAt), progress.BootWord)
	if err != nil {
		return fmt.Errorf("note what was seen of node %s: %w", nodeID, err)
	}
	return nil
}

// SaveRefusals is metal.ContactStore's. A node that is gone has no row to take it from.
func (s nodeTables) SaveRefusals(t job.Tx, nodeID string, r metal.Refusals) error {
	tx, err := s.tx(t)
	if err != nil {
		return err
	}
	_, err = tx.exec(`INSERT INTO contact (node_id, refused_boot, refused_count, refused_at, refused_reason, unproven_count)
			SELECT id, $2, $3, $4, $5, $6 FROM node WHERE id = $1
		ON CONFLICT (node_id) DO UPDATE SET
			refused_count = excluded.refused_count + CASE WHEN excluded.refused_boot = contact.refused_boot THEN contact.refused_count ELSE 0 END,
			unproven_count = excluded.unproven_count + CASE WHEN excluded.refused_boot = contact.refused_boot THEN contact.unproven_count ELSE 0 END,
			refused_at = CASE WHEN excluded.refused_count > 0 OR excluded.refused_boot <> contact.refused_boot THEN excluded.refused_at ELSE contact.refused_at END,
			refused_reason = CASE WHEN excluded.refused_count > 0 OR excluded.refused_boot <> contact.refused_boot THEN excluded.refused_reason ELSE contact.refused_reason END,
			refused_boot = excluded.refused_boot
			WHERE excluded.refused_boot >= contact.refused_boot`,
		nodeID, r.RefusedBoot, r.Refused, toMicros(r.RefusedAt), r.RefusedReason, r.Unproven)
	if err != nil {
		return fmt.Errorf("count refused heartbeats of node %s: %w", nodeID, err)
	}
	return nil
}

// MarkTokenTold is metal.ContactStore's. Boot numbers only rise, so a told boot voids all before it.
func (s nodeTables) MarkTokenTold(t job.Tx, nodeID string, boot int64) (bool, error) {
	tx, err := s.tx(t)
	if err != nil {
		return false, err
	}
	n, err := tx.exec(`INSERT INTO contact (node_id, token_told, lookup_at, revision) VALUES ($1, $2, $3, 1) ON CONFLICT (node_id) DO UPDATE
		SET token_told = excluded.token_told, lookup_at = excluded.lookup_at, revision = contact.revision + 1 WHERE contact.token_told < excluded.token_told`,
		nodeID, boot, toMicros(s.timestamp()))
	return n > 0, s.contactRefused(err, nodeID)
}

func (s nodeTables) contactRefused(err error, nodeID string) error {
	if err == nil {
		return nil
	}
	if s.engine.violated(err) == foreignKey {
		return problem.NotFoundf("Node %s could not be found.", nodeID)
	}
	return fmt.Errorf("save contact of node %s: %w", nodeID, err)
}
