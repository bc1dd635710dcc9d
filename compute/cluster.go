package compute

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"salvor/job"
	"salvor/problem"
	"salvor/record"
	"salvor/rescue"
)

// Kinds of questions to a cluster. They are no operations: the watch is, for as long as the cluster is known.
const (
	JobClusterAdopt     job.Kind = "cluster adopt"
	JobClusterReconcile job.Kind = "cluster reconcile"
)

// ClusterAdoptArgs are the arguments of JobClusterAdopt.
type ClusterAdoptArgs struct {
	Instance string `json:"instance"` // its name at the cluster
	// Name of the server; empty: the instance's.
	Name string `json:"name,omitempty"`
	// OS and OSFamily choose its rescue image; empty: as far as the cluster tells.
	OS       string `json:"os,omitempty"`
	OSFamily string `json:"os_family,omitempty"`
	Project  string `json:"project,omitempty"`
	User     string `json:"user,omitempty"`
}

// Adopted is the answer of JobClusterAdopt.
type Adopted struct {
	ServerID string `json:"server"`
}

// ReconcileArgs are the arguments of JobClusterReconcile.
type ReconcileArgs struct {
	Fix bool `json:"fix,omitempty"`
}

// newClusters makes the service of clusters. A cluster is watched from its creation on, by one job.
func newClusters(c *serviceCore) *Clusters {
	s := record.NewCollection("cluster", c.store.Clusters(), c.jobs, c.now)
	s.Check = checkCluster
	s.Admit = func(ctx context.Context, tx job.Tx, ch record.Change[Cluster]) error {
		if ch.New != nil {
			return nil
		}
		return c.forgetHosts(ctx, tx, ch.Old)
	}
	s.Settle = func(ctx context.Context, tx job.Tx, ch record.Change[Cluster]) error {
		if ch.New == nil {
			return c.endJobs(tx, ClusterSubject(ch.Old.ID))
		}
		if ch.Old != nil {
			return c.jobs.Signal(tx, ClusterSubject(ch.New.ID)) // its words may be wrong no more
		}
		return c.watch(tx, ch.New.ID, ch.Who)
	}
	return s
}

// checkCluster holds the record to what needs no cluster to be known.
func checkCluster(cl *Cluster) error {
	cl.Name = strings.TrimSpace(cl.Name)
	u, err := url.Parse(cl.URL)
	switch {
	case cl.Name == "" || len(cl.Name) > 255 || record.IsUUID(cl.Name):
		return problem.Invalidf("a cluster needs a name of at most 255 characters that is no UUID")
	case cl.Kind == IronicCluster:
		return checkEndpoint(cl)
	case cl.Kind != "" && cl.Kind != GanetiCluster:
		return problem.Invalidf("cluster %s: kind %.50q: want %s or %s", cl.Name, cl.Kind, GanetiCluster, IronicCluster)
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "":
		return problem.Invalidf("cluster %s: RAPI's address must be https://MASTER[:5080], without user and query", cl.Name)
	case cl.User == "" || cl.Password.Empty():
		return problem.Invalidf("cluster %s: RAPI needs a user and a password; the user must have the right to write", cl.Name)
	case cl.Insecure && cl.CA != "":
		return problem.Invalidf("cluster %s: either a CA or insecure", cl.Name)
	}
	return nil
}

// checkEndpoint holds the record of an endpoint of the Bare Metal API to its form.
func checkEndpoint(cl *Cluster) error {
	if cl.Login == "" {
		cl.Login = LoginNone
	}
	users := cl.User != "" && !cl.Password.Empty()
	switch {
	case cl.URL != SelfURL && !webURL(cl.URL):
		return problem.Invalidf("endpoint %s: the address must be %s, or a URL with http or https and without user and query", cl.Name, SelfURL)
	case cl.Insecure && cl.CA != "":
		return problem.Invalidf("endpoint %s: either a CA or insecure", cl.Name)
	case cl.Login == LoginNone && (cl.User != "" || !cl.Password.Empty()):
		return problem.Invalidf("endpoint %s: a user needs a way to log in: %s or %s", cl.Name, LoginBasic, LoginKeystone)
	case cl.Login == LoginNone, cl.Login == LoginBasic && users:
		return nil
	case cl.Login == LoginKeystone && users && webURL(cl.AuthURL) && cl.Project != "":
		return nil
	case cl.Login == LoginBasic:
		return problem.Invalidf("endpoint %s: %s needs a user and a password", cl.Name, cl.Login)
	case cl.Login == LoginKeystone:
		return problem.Invalidf("endpoint %s: %s needs its URL, a user, a password and a project", cl.Name, cl.Login)
	}
	return problem.Invalidf("endpoint %s: login %.50q: want %s, %s or %s", cl.Name, cl.Login, LoginNone, LoginBasic, LoginKeystone)
}

func webURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.RawQuery == ""
}

// forgetHosts removes the nodes of a cluster that is removed; servers must be gone before.
func (c *serviceCore) forgetHosts(ctx context.Context, tx job.Tx, cl *Cluster) error {
	hosts, err := c.store.Hosts().List(ctx, tx, HostFilter{ClusterID: cl.ID}, record.Page{})
	if err != nil {
		return err
	}
	for _, h := range hosts {
		here, err := c.store.Servers().List(ctx, tx, ServerFilter{HostID: h.ID}, record.Page{Limit: 1})
		if err != nil {
			return err
		}
		if len(here) > 0 {
			return problem.Conflictf("cluster %s has servers, %s among them: delete them first (adopted ones stay as they are on Ganeti)", cl.Name, here[0].ID)
		}
		open, err := c.openOf(ctx, tx, h)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			return problem.Conflictf("cluster %s cannot be removed: of its node %s, %s. Wait for their end, or, if it is lost for good, run: salvor cluster remove %s --lost REASON",
				cl.Name, orID(h), abbreviateList(open), cl.Name)
		}
		if err := c.store.Hosts().Delete(tx, h); err != nil {
			return err
		}
	}
	return nil
}

func (c *serviceCore) watch(tx job.Tx, clusterID string, who record.Asker) error {
	return c.jobs.Insert(tx, &job.Job{
		Kind: JobWatch, Class: job.Operation, Subject: ClusterSubject(clusterID), RequestID: who.RequestID, User: who.User,
	})
}

// endJobs ends what waits for a subject that is gone; what runs finds out by itself.
func (c *serviceCore) endJobs(tx job.Tx, subject job.Subject) error {
	open, err := c.jobs.Unended(tx, subject)
	if err != nil {
		return err
	}
	for _, j := range open {
		if j.State != job.Waiting {
			continue
		}
		if err := c.jobs.Interrupt(tx, j.ID, job.Ended, problem.Conflictf("the %s was removed", subject.Kind)); err != nil && !problem.Is(err, problem.Conflict) {
			return err
		}
	}
	return nil
}

// WatchClusters sees to it that every cluster has its watch: one whose job ended by a mistake of ours gets another.
func (s *Servers) WatchClusters(ctx context.Context) error {
	all, err := s.store.Clusters().List(ctx, nil, ClusterFilter{}, record.Page{})
	if err != nil {
		return err
	}
	for _, cl := range all {
		err := s.jobs.Do(ctx, func(tx job.Tx) error {
			open, err := s.jobs.Unended(tx, ClusterSubject(cl.ID))
			if err != nil {
				return err
			}
			for _, j := range open {
				if j.Class == job.Operation {
					return nil
				}
			}
			if _, err := s.store.Clusters().Get(ctx, tx, cl.ID); err != nil {
				return err
			}
			return s.watch(tx, cl.ID, record.Asker{})
		})
		if err != nil && !problem.Is(err, problem.Conflict) && !problem.Is(err, problem.NotFound) {
			return err
		}
	}
	return nil
}

// AskAdoption asks a cluster for one of its instances, to be a server from then on. The answer is Adopted.
func (s *Servers) AskAdoption(ctx context.Context, cluster string, a ClusterAdoptArgs, who Who) (jobID string, err error) {
	if !who.Admin {
		return "", problem.Forbiddenf("only administrators adopt instances")
	}
	if a.Instance == "" || len(a.Instance) > 255 || strings.ContainsAny(a.Instance, "/?# ") {
		return "", problem.Invalidf("adopt: %.100q is no name of an instance", a.Instance)
	}
	cl, err := s.store.Clusters().Get(ctx, nil, cluster)
	if err != nil {
		return "", err
	}
	if cl.Kind == IronicCluster {
		return "", problem.Invalidf("adopt: %s is an endpoint of the Bare Metal API: make a server with a flavor that asks for one of its machines", cl.Name)
	}
	return s.question(ctx, cl, JobClusterAdopt, a, who)
}

// AskReconcile asks every cluster, or the named one, which of its servers are not as it tells; with fix they are mended.
// The answer of each job is a list of Unsynced.
func (s *Servers) AskReconcile(ctx context.Context, cluster string, fix bool, who Who) (jobIDs []string, err error) {
	if !who.Admin {
		return nil, problem.Forbiddenf("only administrators reconcile servers")
	}
	var all []*Cluster
	if cluster == "" {
		all, err = s.store.Clusters().List(ctx, nil, ClusterFilter{}, record.Page{})
	} else {
		var one *Cluster
		one, err = s.store.Clusters().Get(ctx, nil, cluster)
		all = []*Cluster{one}
	}
	if err != nil {
		return nil, err
	}
	for _, cl := range all {
		if cl.Kind == IronicCluster {
			continue // its watch follows what its nodes say
		}
		id, err := s.question(ctx, cl, JobClusterReconcile, ReconcileArgs{Fix: fix}, who)
		if err != nil {
			return nil, err
		}
		jobIDs = append(jobIDs, id)
	}
	return jobIDs, nil
}

func (s *Servers) question(ctx context.Context, cl *Cluster, kind job.Kind, args any, who Who) (string, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	j := &job.Job{Kind: kind, Class: job.Ask, Subject: ClusterSubject(cl.ID), Args: raw, RequestID: who.RequestID, User: who.User}
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		j.ID = ""
		return s.jobs.Insert(tx, j)
	})
	return j.ID, err
}

// Answer waits until a question's job has ended and reads its answer into doc; Unavailable when ctx ends first.
func (s *Servers) Answer(ctx context.Context, jobID string, doc any) error {
	result, err := job.Await(ctx, s.jobs, jobID, "the cluster")
	if err != nil {
		return err
	}
	return json.Unmarshal(result, doc)
}

// RescuePath is where a hypervisor that reads rescue images itself finds this one: a URL, or a path under directory on every
// node. Sources that lie with the control plane are on no such path.
func RescuePath(directory string, src *rescue.Source) (string, error) {
	switch src.LocationType {
	case rescue.LocationHTTP:
		return src.Location, nil
	case rescue.LocationFile:
		return ResolvePath(directory, src.Location)
	}
	return "", problem.Unsupportedf("rescue image %q lies with the control plane, and this hypervisor reads files of its own and URLs only", src.Name)
}
