// Package ironic runs servers on bare metal: each is a node of an endpoint of the Bare Metal API,
// ours or any other. It knows nodes by that API only; it knows no store.
package ironic
