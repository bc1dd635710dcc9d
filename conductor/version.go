package conductor

import "salvor/job"

// Versions are those of the lists of every operation, for whoever asks for work without running it.
func Versions() map[job.Kind]int { return job.Versions(new(Conductor).Definitions()) }
