package ganeti

import (
	"context"
	"reflect"
	"sync"

	"salvor/compute"
	"salvor/hypervisor"
	"salvor/problem"
)

// Clusters gives the clients of clusters and of their hosts. It keeps a client as long as the cluster's record says the same.
type Clusters struct {
	// Find reads a cluster's record by its UUID.
	Find func(ctx context.Context, id string) (*compute.Cluster, error)

	mu    sync.Mutex
	known map[string]cachedCluster
}

type cachedCluster struct {
	conf   Config
	client *Client
}

// Of is the hypervisor of a cluster's host.
func (c *Clusters) Of(ctx context.Context, h *compute.Host) (hypervisor.Hypervisor, error) {
	if h.Kind != compute.GanetiHost || h.ClusterID == "" {
		return nil, problem.Unsupportedf("host %s is no node of a Ganeti cluster", h.ID)
	}
	row, err := c.Find(ctx, h.ClusterID)
	if err != nil {
		return nil, err
	}
	client, err := c.client(row)
	if err != nil {
		return nil, err
	}
	return Host{Client: client, Node: h.Name}, nil
}

// Cluster is the cluster itself.
func (c *Clusters) Cluster(row *compute.Cluster) (hypervisor.Cluster, error) {
	return c.client(row)
}

// client compares what matters of the record and not its version, which each turn of the watcher may raise.
func (c *Clusters) client(row *compute.Cluster) (*Client, error) {
	conf := Config{URL: row.URL, User: row.User, Password: row.Password, CA: row.CA, Insecure: row.Insecure}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.known[row.ID]; ok && reflect.DeepEqual(e.conf, conf) {
		return e.client, nil
	}
	client, err := New(conf)
	if err != nil {
		return nil, problem.New(problem.KindOf(err), "cluster %s: %w", row.Name, err)
	}
	if c.known == nil {
		c.known = map[string]cachedCluster{}
	}
	if old, ok := c.known[row.ID]; ok {
		old.client.Close()
	}
	c.known[row.ID] = cachedCluster{conf: conf, client: client}
	return client, nil
}
