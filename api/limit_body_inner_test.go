package api

import "testing"

// TestHeldBodiesAreBounded: if bodies of strangers are more than heldBytes together, the largest is cut off, and its memory is free.
func TestHeldBodiesAreBounded(t *testing.T) {
	b := newBodies()
	cut := 0
	largest := &arrivingBody{cut: func() {
		if cut++; cut > 1 {
			t.Fatal("a body is cut off again, and its room is not free")
		}
	}}
	small := &arrivingBody{cut: func() { t.Fatal("the smaller body is cut off") }}
	if !b.add(largest, heldBytes-10) || !b.add(small, 10) || cut != 0 {
		t.Fatalf("what fits is cut off: %d", cut)
	}
	if !b.add(small, 1) || cut != 1 || b.held != 11 {
		t.Errorf("%d bodies were cut off, %d bytes are held", cut, b.held)
	}
	if b.add(largest, 1) {
		t.Error("a body that was cut off goes on")
	}
	if b.add(&arrivingBody{}, heldBytes+1) || b.held != 11 {
		t.Errorf("a body that is too large alone has room: %d bytes are held", b.held)
	}
}
