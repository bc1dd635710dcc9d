// Package api is the plumbing of every HTTP interface: request ids, limits of size
// and depth, time-outs, microversions, authentication, and how a problem becomes a
// status. It knows no resource and no dialect's bodies: those are the sub-packages.
package api
