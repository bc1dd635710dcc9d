package service

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"salvor/compute"
	"salvor/job"
	"salvor/problem"
	"salvor/record"
)

// newClusters makes the service of clusters. A cluster is watched from its creation on, by one job.
func newClusters(c *serviceCore) *Clusters {
	s := record.NewCollection("cluster", c.store.Clusters(), c.jobs, c.now)
	s.Check = checkCluster
	s.Admit = func(ctx context.Context, tx job.Tx, ch record.Change[compute.Cluster]) error {
		if ch.New != nil {
			return nil
		}
		return c.forgetHosts(ctx, tx, ch.Old)
	}
	s.Settle = func(ctx context.Context, tx job.Tx, ch record.Change[compute.Cluster]) error {
		if ch.New == nil {
			return c.endJobs(tx, compute.ClusterSubject(ch.Old.ID))
		}
		if ch.Old != nil {
			return c.jobs.Signal(tx, compute.ClusterSubject(ch.New.ID)) // its words may be wrong no more
		}
		return c.watch(tx, ch.New.ID, ch.Asker)
	}
	return s
}

// checkCluster holds the record to what needs no cluster to be known.
func checkCluster(cl *compute.Cluster) error {
	cl.Name = strings.TrimSpace(cl.Name)
	u, err := url.Parse(cl.URL)
	switch {
	case cl.Name == "" || len(cl.Name) > 255 || record.IsUUID(cl.Name):
		return problem.Invalidf("a cluster needs a name of at most 255 characters that is no UUID")
	case cl.Kind == compute.IronicCluster:
		return checkEndpoint(cl)
	case cl.Kind != "" && cl.Kind != compute.GanetiCluster:
		return problem.Invalidf("cluster %s: kind %.50q: want %s or %s", cl.Name, cl.Kind, compute.GanetiCluster, compute.IronicCluster)
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
func checkEndpoint(cl *compute.Cluster) error {
	if cl.Login == "" {
		cl.Login = compute.LoginNone
	}
	users := cl.User != "" && !cl.Password.Empty()
	switch {
	case cl.URL != compute.SelfURL && !webURL(cl.URL):
		return problem.Invalidf("endpoint %s: the address must be %s, or a URL with http or https and without user and query", cl.Name, compute.SelfURL)
	case cl.Insecure && cl.CA != "":
		return problem.Invalidf("endpoint %s: either a CA or insecure", cl.Name)
	case cl.Login == compute.LoginNone && (cl.User != "" || !cl.Password.Empty()):
		return problem.Invalidf("endpoint %s: a user needs a way to log in: %s or %s", cl.Name, compute.LoginBasic, compute.LoginKeystone)
	case cl.Login == compute.LoginNone, cl.Login == compute.LoginBasic && users:
		return nil
	case cl.Login == compute.LoginKeystone && users && webURL(cl.AuthURL) && cl.Project != "":
		return nil
	case cl.Login == compute.LoginBasic:
		return problem.Invalidf("endpoint %s: %s needs a user and a password", cl.Name, cl.Login)
	case cl.Login == compute.LoginKeystone:
		return problem.Invalidf("endpoint %s: %s needs its URL, a user, a password and a project", cl.Name, cl.Login)
	}
	return problem.Invalidf("endpoint %s: login %.50q: want %s, %s or %s", cl.Name, cl.Login, compute.LoginNone, compute.LoginBasic, compute.LoginKeystone)
}

func webURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.RawQuery == ""
}

// forgetHosts removes the nodes of a cluster that is removed; servers must be gone before.
func (c *serviceCore) forgetHosts(ctx context.Context, tx job.Tx, cl *compute.Cluster) error {
	hosts, err := c.store.Hosts().List(ctx, tx, compute.HostFilter{ClusterID: cl.ID}, record.Page{})
	if err != nil {
		return err
	}
	for _, h := range hosts {
		here, err := c.store.Servers().List(ctx, tx, compute.ServerFilter{HostID: h.ID}, record.Page{Limit: 1})
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
				cl.Name, compute.OrID(h), compute.AbbreviateList(open), cl.Name)
		}
		if err := c.store.Hosts().Delete(tx, h); err != nil {
			return err
		}
	}
	return nil
}

func (c *serviceCore) watch(tx job.Tx, clusterID string, who record.Asker) error {
	return c.jobs.Insert(tx, &job.Job{
		Kind: compute.JobWatch, Class: job.Operation, Subject: compute.ClusterSubject(clusterID), RequestID: who.RequestID, User: who.User,
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

// Reconciler keeps the records of servers on clusters as the clusters have them.
type Reconciler struct {
	*serviceCore
	servers  *Servers
	observer *Observer
}

// WatchClusters sees to it that every cluster has its watch: one whose job ended by a mistake of ours gets another.
func (s *Reconciler) WatchClusters(ctx context.Context) error {
	all, err := s.store.Clusters().List(ctx, nil, compute.ClusterFilter{}, record.Page{})
	if err != nil {
		return err
	}
	for _, cl := range all {
		err := s.jobs.Do(ctx, func(tx job.Tx) error {
			open, err := s.jobs.Unended(tx, compute.ClusterSubject(cl.ID))
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
func (s *Reconciler) AskAdoption(ctx context.Context, cluster string, a compute.ClusterAdoptArgs, who compute.Who) (jobID string, err error) {
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
	if cl.Kind == compute.IronicCluster {
		return "", problem.Invalidf("adopt: %s is an endpoint of the Bare Metal API: make a server with a flavor that asks for one of its machines", cl.Name)
	}
	return s.question(ctx, cl, compute.JobClusterAdopt, a, who)
}

// AskReconcile asks every cluster, or the named one, which of its servers are not as it tells; with fix they are mended.
// The answer of each job is a list of Unsynced.
func (s *Reconciler) AskReconcile(ctx context.Context, cluster string, fix bool, who compute.Who) (jobIDs []string, err error) {
	if !who.Admin {
		return nil, problem.Forbiddenf("only administrators reconcile servers")
	}
	var all []*compute.Cluster
	if cluster == "" {
		all, err = s.store.Clusters().List(ctx, nil, compute.ClusterFilter{}, record.Page{})
	} else {
		var one *compute.Cluster
		one, err = s.store.Clusters().Get(ctx, nil, cluster)
		all = []*compute.Cluster{one}
	}
	if err != nil {
		return nil, err
	}
	for _, cl := range all {
		if cl.Kind == compute.IronicCluster {
			continue // its watch follows what its nodes say
		}
		id, err := s.question(ctx, cl, compute.JobClusterReconcile, compute.ReconcileArgs{Fix: fix}, who)
		if err != nil {
			return nil, err
		}
		jobIDs = append(jobIDs, id)
	}
	return jobIDs, nil
}

func (s *Reconciler) question(ctx context.Context, cl *compute.Cluster, kind job.Kind, args any, who compute.Who) (string, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	j := &job.Job{Kind: kind, Class: job.Background, Subject: compute.ClusterSubject(cl.ID), Args: raw, RequestID: who.RequestID, User: who.User}
	err = s.jobs.Do(ctx, func(tx job.Tx) error {
		j.ID = ""
		return s.jobs.Insert(tx, j)
	})
	return j.ID, err
}

// Answer waits until a question's job has ended and reads its answer into doc; Unavailable when ctx ends first.
func (s *Reconciler) Answer(ctx context.Context, jobID string, doc any) error {
	result, err := job.Await(ctx, s.jobs, jobID, "the cluster")
	if err != nil {
		return err
	}
	return json.Unmarshal(result, doc)
}
