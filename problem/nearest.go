package problem

// maxNear bounds the length in bytes of a word that Nearest compares, because any client may send one.
const maxNear = 64

// Nearest gives the known name that the user probably meant by a word, for error texts; empty if none is near.
func Nearest(word string, names []string) string {
	if len(word) > maxNear {
		return ""
	}
	best, least := "", len(word)/3+2
	for _, n := range names {
		if d := Distance(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// Distance counts the bytes to insert, delete, replace or swap with their neighbour. Its time grows with the product of both lengths.
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
