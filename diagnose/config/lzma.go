package config

import "errors"

var errLZMA = errors.New("it is no LZMA stream")

// lzmaDecoder unpacks the raw LZMA stream in which GRUB packs its core image: without a header, with the properties lc=3, lp=0, pb=2. The format is
// that of the LZMA specification of 7-Zip.
type lzmaDecoder struct {
	in          []byte
	at          int
	rng, code   uint32
	out         []byte
	isMatch     [12 << 4]uint16
	isRep       [12]uint16
	isRepG0     [12]uint16
	isRepG1     [12]uint16
	isRepG2     [12]uint16
	isRep0Long  [12 << 4]uint16
	posSlot     [4][64]uint16
	posSpecial  [115]uint16
	posAlign    [16]uint16
	matchLength lzmaLength
	repLength   lzmaLength
	literals    [8 * 0x300]uint16
}

// lzmaLength decodes the length of a match.
type lzmaLength struct {
	choice, choice2 uint16
	low, mid        [4][8]uint16
	high            [256]uint16
}

const lzmaHalf = 1 << 10 // the probability, of 1<<11, that a bit is 0 where the stream has had no such bit before

func FillHalf(probabilities []uint16) {
	for i := range probabilities {
		probabilities[i] = lzmaHalf
	}
}

func (l *lzmaLength) reset() {
	l.choice, l.choice2 = lzmaHalf, lzmaHalf
	for i := range l.low {
		FillHalf(l.low[i][:])
		FillHalf(l.mid[i][:])
	}
	FillHalf(l.high[:])
}

// UnpackLZMA returns the size bytes that a stream holds.
func UnpackLZMA(in []byte, size int) ([]byte, error) {
	if len(in) < 5 || in[0] != 0 {
		return nil, errLZMA
	}
	d := &lzmaDecoder{in: in, at: 5, rng: 0xffffffff, out: make([]byte, 0, size)}
	for _, b := range in[1:5] {
		d.code = d.code<<8 | uint32(b)
	}
	for _, p := range [][]uint16{d.isMatch[:], d.isRep[:], d.isRepG0[:], d.isRepG1[:], d.isRepG2[:], d.isRep0Long[:], d.posSpecial[:], d.posAlign[:], d.literals[:]} {
		FillHalf(p)
	}
	for i := range d.posSlot {
		FillHalf(d.posSlot[i][:])
	}
	d.matchLength.reset()
	d.repLength.reset()
	if err := d.unpack(size); err != nil {
		return nil, err
	}
	return d.out, nil
}

func (d *lzmaDecoder) normalize() {
	if d.rng >= 1<<24 {
		return
	}
	d.rng <<= 8
	d.code <<= 8
	if d.at < len(d.in) {
		d.code |= uint32(d.in[d.at])
	}
	d.at++ // beyond the end, unpack stops
}

func (d *lzmaDecoder) bit(p *uint16) uint32 {
	bound := (d.rng >> 11) * uint32(*p)
	var bit uint32
	if d.code < bound {
		d.rng = bound
		*p += (1<<11 - *p) >> 5
	} else {
		d.rng -= bound
		d.code -= bound
		*p -= *p >> 5
		bit = 1
	}
	d.normalize()
	return bit
}

// Tree decodes a number of bits, the highest first.
func (d *lzmaDecoder) tree(p []uint16, bits uint) uint32 {
	m := uint32(1)
	for range bits {
		m = m<<1 | d.bit(&p[m])
	}
	return m - 1<<bits
}

// reverseTree decodes a number of bits, the lowest first. The probability of the tree's node m lies at p[m+base].
func (d *lzmaDecoder) reverseTree(p []uint16, base int, bits uint) uint32 {
	m, out := uint32(1), uint32(0)
	for i := range bits {
		b := d.bit(&p[base+int(m)])
		m = m<<1 | b
		out |= b << i
	}
	return out
}

func (d *lzmaDecoder) direct(bits uint) uint32 {
	out := uint32(0)
	for range bits {
		d.rng >>= 1
		d.code -= d.rng
		mask := 0 - d.code>>31
		d.code += d.rng & mask
		d.normalize()
		out = out<<1 + mask + 1
	}
	return out
}

func (d *lzmaDecoder) length(l *lzmaLength, position int) int {
	switch {
	case d.bit(&l.choice) == 0:
		return int(d.tree(l.low[position][:], 3))
	case d.bit(&l.choice2) == 0:
		return 8 + int(d.tree(l.mid[position][:], 3))
	}
	return 16 + int(d.tree(l.high[:], 8))
}

// distance decodes how far back a match of a length lies.
func (d *lzmaDecoder) distance(length int) uint32 {
	slot := d.tree(d.posSlot[min(length, 3)][:], 6)
	if slot < 4 {
		return slot
	}
	bits := uint(slot>>1 - 1)
	out := (2 | slot&1) << bits
	if slot < 14 {
		return out + d.reverseTree(d.posSpecial[:], int(out)-int(slot), bits)
	}
	return out + d.direct(bits-4)<<4 + d.reverseTree(d.posAlign[:], 0, 4)
}

func (d *lzmaDecoder) literal(state int, rep0 uint32) {
	previous := byte(0)
	if len(d.out) > 0 {
		previous = d.out[len(d.out)-1]
	}
	p := d.literals[0x300*int(previous>>5):]
	symbol := uint32(1)
	if state >= 7 {
		matched := uint32(d.out[len(d.out)-int(rep0)-1])
		for symbol < 0x100 {
			matchBit := matched >> 7 & 1
			matched <<= 1
			b := d.bit(&p[(1+matchBit)<<8+symbol])
			symbol = symbol<<1 | b
			if matchBit != b {
				break
			}
		}
	}
	for symbol < 0x100 {
		symbol = symbol<<1 | d.bit(&p[symbol])
	}
	d.out = append(d.out, byte(symbol))
}

// lzmaStates are the states behind a literal, by the state before it.
var lzmaStates = [12]int{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 4, 5}

// lzmaMatched are the states behind a match, a repeated match and a match of a single byte. The first row holds where a literal came before, the second
// row where a match came before.
var lzmaMatched = [2]struct{ match, rep, short int }{{7, 8, 9}, {10, 11, 11}}

func (d *lzmaDecoder) unpack(size int) error {
	state := 0
	var rep [4]uint32
	for len(d.out) < size {
		if d.at > len(d.in)+8 {
			return errLZMA
		}
		position := len(d.out) & 3
		if d.bit(&d.isMatch[state<<4+position]) == 0 {
			if state >= 7 && int(rep[0]) >= len(d.out) {
				return errLZMA
			}
			d.literal(state, rep[0])
			state = lzmaStates[state]
			continue
		}
		length, behind := 0, lzmaMatched[min(state/7, 1)]
		switch {
		case d.bit(&d.isRep[state]) == 0:
			rep[3], rep[2], rep[1] = rep[2], rep[1], rep[0]
			length = 2 + d.length(&d.matchLength, position)
			rep[0], state = d.distance(length-2), behind.match
		case d.repeated(&rep, state, position):
			length, state = 1, behind.short
		default:
			length, state = 2+d.length(&d.repLength, position), behind.rep
		}
		if int64(rep[0]) >= int64(len(d.out)) {
			return errLZMA
		}
		for range min(length, size-len(d.out)) {
			d.out = append(d.out, d.out[len(d.out)-int(rep[0])-1])
		}
	}
	return nil
}

// repeated chooses one of the last four distances, and says whether the match is of one byte.
func (d *lzmaDecoder) repeated(rep *[4]uint32, state, position int) (short bool) {
	if d.bit(&d.isRepG0[state]) == 0 {
		return d.bit(&d.isRep0Long[state<<4+position]) == 0
	}
	var distance uint32
	if d.bit(&d.isRepG1[state]) == 0 {
		distance = rep[1]
	} else {
		if d.bit(&d.isRepG2[state]) == 0 {
			distance = rep[2]
		} else {
			distance = rep[3]
			rep[3] = rep[2]
		}
		rep[2] = rep[1]
	}
	rep[1], rep[0] = rep[0], distance
	return false
}
