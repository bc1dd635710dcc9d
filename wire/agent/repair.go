package agent

import "time"

// PlanRepair mends the machine's systems on overlays in memory, writes nothing to a disk, and keeps the overlays until EndRepair, a later
// PlanRepair or the end of the agent. It runs in the background; its outcome is a repair.Plan of at most 8 MiB. Problems: Conflict while an
// examination or another repair is under way.
const PlanRepair = "repair.plan"

// PlanRepairParams are the params of PlanRepair. A value of this type holds keys in the open: it is made last and never logged.
type PlanRepairParams struct {
	ExamineParams
	// ID is the repair's UUID; the later commands name it.
	ID string `json:"id"`
	// Findings lists the ids to mend; empty: all that the consents allow.
	Findings []string `json:"findings,omitempty"`
	// Root is the device of the system to mend; empty where only one has something to mend. Agents of older releases do not know it.
	Root string `json:"root,omitempty"`
	// Consents (settings, files, boot): findings whose repair needs another one are not mended.
	Consents []string `json:"consents"`
	// Restore lists files to put back instead: an undo by files.
	Restore []RestoreFile `json:"restore,omitempty"`
	// MaxChanged bounds the bytes of all changed chunks; a plan that needs more fails.
	MaxChanged int64 `json:"max_changed"`
}

// RestoreFile is a file that an undo puts back, where it still is what the repair made of it.
type RestoreFile struct {
	Root string `json:"root"` // the device, as the plan named it
	Path string `json:"path"`
	// Before and After are repair.FileState, as the plan had them.
	Before any `json:"before"`
	After  any `json:"after"`
	// Content of a regular file as it was before.
	Content []byte `json:"content,omitempty"`
	// LeftOut is why an undo cannot put the file back; the other fields but Root and Path are empty then. The plan of the undo names the file.
	LeftOut string `json:"left_out,omitempty"`
}

// BeforeImages has the agent give a page of what the changed chunks hold on the disks now. Its outcome is an ImagePage. Asked with the
// cursor of the former page's end, it gives the next one.
const BeforeImages = "repair.images"

// BeforeImagesParams are the params of BeforeImages.
type BeforeImagesParams struct {
	ID     string `json:"id"`
	Cursor string `json:"cursor,omitempty"` // empty: from the beginning
}

// ImagePage is a page of chunks, of at most 2 MiB before its encoding.
type ImagePage struct {
	Chunks []ImageChunk `json:"chunks"`
	// Next is the cursor of the next page; empty after the last one.
	Next string `json:"next,omitempty"`
}

// ImageChunk is what is written to one chunk of a disk, or was there before.
type ImageChunk struct {
	// Disk is the place of the disk in the plan's list.
	Disk int `json:"disk"`
	// Offset is in bytes.
	Offset int64 `json:"offset"`
	// Before is the content, compressed with zstd. Length is its length before, in bytes: repair.ChunkSize, less at the end of a disk.
	Before []byte `json:"before"`
	Length int    `json:"length"`
	// After is the SHA-256 of the content that the repair writes.
	After []byte `json:"after"`
}

// WriteRepair writes the changed chunks of the plan to the disks in the order of their offsets, flushes, and reads them back. Each chunk must
// hold what it held before or what it shall hold; with any other content nothing more is written (Conflict). It runs in the background; its
// outcome is a WrittenRepair. It fails where a setting of the firmware cannot be carried out, though the chunks are written. Said again, it goes on. Without the overlays of this repair it is NotFound, and the conductor rolls back.
const WriteRepair = "repair.write"

// WriteRepairParams are the params of WriteRepair.
type WriteRepairParams struct {
	ID     string `json:"id"`
	Digest string `json:"digest"` // of the plan that the owner consented to
}

// WrittenRepair is the outcome of WriteRepair and of RestoreImages.
type WrittenRepair struct {
	Chunks int64 `json:"chunks"` // that were written
	// Settings lists the settings of the firmware that were carried out, by the kind and the outcome in words.
	Settings []string `json:"settings,omitempty"`
	// SettingsUndo says how those settings are undone: none. It is empty where none was carried out.
	SettingsUndo string    `json:"settings_undo,omitempty"`
	At           time.Time `json:"at"`
}

// RestoreImages writes a page of before-images back, if each of its chunks holds what the repair wrote or what was there before. With Check it
// only compares. It needs no overlays and no former command: it works after the machine has restarted. Its outcome is a WrittenRepair.
const RestoreImages = "repair.restore"

// RestoreImagesParams are the params of RestoreImages.
type RestoreImagesParams struct {
	// Disks are the disks of the plan, by which those of the machine are found: serial, WWN and size.
	Disks  []RestoreDisk `json:"disks"`
	Chunks []ImageChunk  `json:"chunks"`
	Check  bool          `json:"check,omitempty"`
}

// RestoreDisk names a disk.
type RestoreDisk struct {
	Path   string `json:"path"`
	Serial string `json:"serial,omitempty"`
	WWN    string `json:"wwn,omitempty"`
	Size   int64  `json:"size"`
}

// FileContents gives the contents of files that the plan changes, as they were before, for an undo by files. Its outcome is a list of
// RestoreFile with contents of at most 2 MiB, in the order of the plan. Files of more than 1 MiB and those that a program makes follow without
// their contents and with the reason. The list is empty where no file can be put back.
const FileContents = "repair.files"

// EndRepair takes the overlays down. Said again, it does nothing.
const EndRepair = "repair.end"

// EndRepairParams are the params of EndRepair and of FileContents.
type EndRepairParams struct {
	ID string `json:"id"`
}
