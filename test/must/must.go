// Package must ends a test at an error that it does not expect, in one line. Only tests import it.
package must

// Test is what this needs of a test, of a benchmark, or of a world that holds one.
type Test interface {
	Helper()
	Fatal(args ...any)
}

// OK ends the test at an error.
func OK(t Test, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get gives the value that a call returned, and ends the test if it returned an error: v := must.Get(call())(t).
func Get[T any](v T, err error) func(Test) T {
	return func(t Test) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
