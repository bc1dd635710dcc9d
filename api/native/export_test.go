package native

import "time"

// Impatient cuts slow followers off at once.
func Impatient(d time.Duration) (restore func()) {
	was := streamPatience
	streamPatience = d
	return func() { streamPatience = was }
}

// Followers counts those who follow.
func (f *Feed) Followers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.followers
}
