package media

import (
	"encoding/binary"
	"strings"

	"salvor/problem"
)

// File is a file to put into a volume.
type File struct {
	// Path is slash separated without a leading slash; each element is an upper-case
	// 8.3 name, as "EFI/BOOT/BOOTX64.EFI". Directories are made as needed.
	Path string
	Data Blob
}

const (
	fatSector      = 512
	fatRootEntries = 48 // three sectors: with one boot sector and two even FATs the data starts at a multiple of 2048
	fatCluster     = 2048
	fatEntry       = 32
	fat12Clusters  = 4084  // more than these and readers take it for FAT16
	fat16Clusters  = 65524 // more than these and readers take it for FAT32
	fatMaxCluster  = 32 << 10
)

// fatNode is a directory or a file with the clusters it was given.
type fatNode struct {
	name     string
	short    string // as records write it: 11 characters
	long     []byte // the records of a long name, which come before the node's own
	data     Blob
	dir      bool
	children []*fatNode
	cluster  int
	clusters int
}

// FAT makes a FAT12 or FAT16 volume, as an EFI system partition needs it: every file
// lies in one piece, at a multiple of 2048 bytes, so that an ISO 9660 directory may
// point into it. It returns the volume and the offset of each file by its path.
func FAT(label string, files []File) (Blob, map[string]int64, error) {
	root := &fatNode{dir: true}
	nodes := map[string]*fatNode{"": root}
	for _, f := range files {
		if err := fatInsert(nodes, f); err != nil {
			return nil, nil, err
		}
	}
	return fatVolume(root, fatLayout{sector: fatSector, rootEntries: fatRootEntries, cluster: fatCluster, label: fatLabel(label)})
}

// fatVolume writes the tree of a volume. The layout has the sizes that the volume begins with.
func fatVolume(root *fatNode, from fatLayout) (Blob, map[string]int64, error) {
	g, err := fatGeometry(root, from)
	if err != nil {
		return nil, nil, err
	}
	if entries := fatEntries(root); entries > g.rootEntries {
		return nil, nil, problem.Invalidf("FAT volume: %d entries in its root, at most %d", entries-1, g.rootEntries-1)
	}
	table := make([]uint16, g.clusters+2)
	table[0], table[1] = 0xfff8, 0xffff
	g.place(root, table)

	var a assembly
	a.addBytes(1, g.bootSector())
	fat := g.encodeTable(table)
	a.addBytes(1, fat)
	a.addBytes(1, fat)
	a.addBytes(1, g.directory(root, nil))
	g.start = a.size
	offsets := map[string]int64{}
	g.write(&a, root, "", offsets)
	a.size = g.start + int64(g.clusters)*g.cluster
	return a.blob(), offsets, nil
}

func fatInsert(nodes map[string]*fatNode, f File) error {
	parts := strings.Split(f.Path, "/")
	path := ""
	for i, name := range parts {
		if !fatName(name) {
			return problem.Invalidf("FAT volume: %q in %q is not an upper-case 8.3 name", name, f.Path)
		}
		parent := nodes[path]
		path = strings.TrimPrefix(path+"/"+name, "/")
		last := i == len(parts)-1
		if have := nodes[path]; have != nil {
			if last || !have.dir {
				return problem.Invalidf("FAT volume: %s is there twice", path)
			}
			continue
		}
		n := &fatNode{name: name, short: fatShort(name), dir: !last}
		if last {
			n.data = f.Data
		}
		parent.children = append(parent.children, n)
		nodes[path] = n
	}
	return nil
}

func fatName(s string) bool {
	base, ext, dotted := strings.Cut(s, ".")
	if base == "" || len(base) > 8 || len(ext) > 3 || dotted && ext == "" {
		return false
	}
	for _, c := range base + ext {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

type fatLayout struct {
	sector      int64 // bytes
	rootEntries int
	label       string // 11 characters
	cluster     int64  // bytes
	clusters    int
	wide        bool  // FAT16
	fatSize     int64 // sectors of one table
	start       int64 // bytes before the first cluster
	next        int
}

// fatGeometry takes the smallest cluster that keeps the count below FAT32's.
func fatGeometry(root *fatNode, from fatLayout) (*fatLayout, error) {
	g := &from
	for g.next = 2; ; g.cluster *= 2 {
		if g.cluster > fatMaxCluster {
			return nil, problem.Invalidf("FAT volume: content does not fit %d MiB", fatMaxCluster*fat16Clusters>>20)
		}
		if g.clusters = fatCount(root, g.cluster); g.clusters <= fat16Clusters {
			break
		}
	}
	g.clusters = max(g.clusters, 1)
	g.wide = g.clusters > fat12Clusters
	size := int64(g.clusters+2) * 2
	if !g.wide {
		size = (int64(g.clusters+2)*3 + 1) / 2
	}
	g.fatSize = roundUp(roundUp(size, g.sector)/g.sector, 2)
	return g, nil
}

// fatEntries counts the records of a directory with the two that it begins with, or the label of the root.
func fatEntries(n *fatNode) int {
	count := 2
	if n.name == "" {
		count = 1
	}
	for _, c := range n.children {
		count += 1 + len(c.long)/fatEntry
	}
	return count
}

// fatCount gives each node its number of clusters and sums them.
func fatCount(n *fatNode, cluster int64) int {
	total := 0
	for _, c := range n.children {
		size := int64(fatEntries(c)) * fatEntry
		if !c.dir {
			size = 0
			if c.data != nil {
				size = c.data.Size()
			}
		}
		// Compared before the conversion: an absurd size must not wrap.
		count := min(roundUp(size, cluster)/cluster, fat16Clusters+1)
		c.clusters = int(count)
		total += c.clusters + fatCount(c, cluster)
	}
	return total
}

// place hands out clusters in one piece each and chains them in the table.
func (g *fatLayout) place(n *fatNode, table []uint16) {
	for _, c := range n.children {
		if c.clusters > 0 {
			c.cluster = g.next
			for i := range c.clusters - 1 {
				table[g.next+i] = uint16(g.next + i + 1)
			}
			table[g.next+c.clusters-1] = 0xffff
			g.next += c.clusters
		}
		g.place(c, table)
	}
}

// write lays the content down, in the order of place.
func (g *fatLayout) write(a *assembly, n *fatNode, path string, offsets map[string]int64) {
	for _, c := range n.children {
		at := strings.TrimPrefix(path+"/"+c.name, "/")
		if c.clusters > 0 {
			a.size = g.start + int64(c.cluster-2)*g.cluster
		}
		if c.dir {
			a.addBytes(1, g.directory(c, n))
		} else {
			offsets[at] = g.start
			if c.clusters > 0 {
				offsets[at] = a.add(1, c.data, c.data.Size())
			}
		}
		g.write(a, c, at, offsets)
	}
}

func (g *fatLayout) bootSector() []byte {
	b := make([]byte, g.sector)
	copy(b, "\xeb\x3c\x90SALVOR  ")
	le := binary.LittleEndian
	le.PutUint16(b[11:], uint16(g.sector))
	b[13] = byte(g.cluster / g.sector)
	le.PutUint16(b[14:], 1) // reserved
	b[16] = 2               // tables
	le.PutUint16(b[17:], uint16(g.rootEntries))
	sectors := 1 + 2*g.fatSize + int64(g.rootEntries)*fatEntry/g.sector + int64(g.clusters)*g.cluster/g.sector
	if sectors < 1<<16 {
		le.PutUint16(b[19:], uint16(sectors))
	} else {
		le.PutUint32(b[32:], uint32(sectors))
	}
	b[21] = 0xf8
	le.PutUint16(b[22:], uint16(g.fatSize))
	le.PutUint16(b[24:], 32)
	le.PutUint16(b[26:], 64)
	b[36], b[38] = 0x80, 0x29
	copy(b[39:], "SLVR")
	copy(b[43:], g.label)
	copy(b[54:], "FAT12   ")
	if g.wide {
		copy(b[54:], "FAT16   ")
	}
	b[510], b[511] = 0x55, 0xaa
	return b
}

func (g *fatLayout) encodeTable(table []uint16) []byte {
	b := make([]byte, g.fatSize*g.sector)
	for i, v := range table {
		if g.wide {
			binary.LittleEndian.PutUint16(b[2*i:], v)
			continue
		}
		at := i * 3 / 2
		if i%2 == 0 {
			b[at] = byte(v)
			b[at+1] = b[at+1]&0xf0 | byte(v>>8)&0x0f
		} else {
			b[at] = b[at]&0x0f | byte(v<<4)
			b[at+1] = byte(v >> 4)
		}
	}
	return b
}

// directory encodes a directory; the root (no parent) has a label in place of
// the dot entries.
func (g *fatLayout) directory(n, parent *fatNode) []byte {
	var b []byte
	if parent == nil {
		b = append(b, fatRecord(g.label, 0x08, 0, 0)...)
	} else {
		b = append(b, fatRecord(".          ", 0x10, n.cluster, 0)...)
		b = append(b, fatRecord("..         ", 0x10, parent.cluster, 0)...)
	}
	for _, c := range n.children {
		b = append(b, c.long...)
		if c.dir {
			b = append(b, fatRecord(c.short, 0x10, c.cluster, 0)...)
			continue
		}
		var size int64
		if c.data != nil {
			size = c.data.Size()
		}
		b = append(b, fatRecord(c.short, 0x20, c.cluster, uint32(size))...)
	}
	if parent == nil {
		b = append(b, make([]byte, g.rootEntries*fatEntry-len(b))...)
	}
	return b
}

func fatRecord(name string, attr byte, cluster int, size uint32) []byte {
	b := make([]byte, fatEntry)
	copy(b, name)
	b[11] = attr
	const date1980 = 1<<5 | 1 // the first day that FAT can write
	for _, at := range []int{16, 18, 24} {
		binary.LittleEndian.PutUint16(b[at:], date1980)
	}
	binary.LittleEndian.PutUint16(b[26:], uint16(cluster))
	binary.LittleEndian.PutUint32(b[28:], size)
	return b
}

// fatShort spells an 8.3 name as records do.
func fatShort(name string) string {
	base, ext, _ := strings.Cut(name, ".")
	return (base + "        ")[:8] + (ext + "   ")[:3]
}

func fatLabel(s string) string { return (strings.ToUpper(s) + "           ")[:11] }
