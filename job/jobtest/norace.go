//go:build !race

package jobtest

// stride is how many disturbances there are to one that is tried: without the race
// detector every one is.
const stride = 1
