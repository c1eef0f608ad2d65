package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// blockBytes is the size of a block of ext4 and xfs. Sizes of files are rounded up to it, as the
	// kubelet does for the files of an emptyDir.
	blockBytes = 4 << 10

	// diskPause is the pause after a failed write. Reviews are dropped meanwhile.
	diskPause = time.Second

	// scanEach is the interval at which the folder is read again: another process may write to it,
	// and recordings become too old.
	scanEach = time.Minute

	// warnEach is the minimum interval between two warnings about reviews that cannot be recorded.
	warnEach = time.Minute

	// nameBytesMax is the maximum length of the resource and operation in the name of a file. Names of
	// files may have 255 bytes.
	nameBytesMax = 100
)

// The extensions of the two files of a recording, and the prefix of files that are being written.
const (
	ReviewExtension = ".json"
	AnswerExtension = ".answer"
	unfinished      = ".unfinished-"
)

const timeFormat = "20060102T150405.000000000Z"

// ours matches the names of recordings without the extension. The recorder never removes other files.
var ours = regexp.MustCompile(`^\d{8}T\d{6}\.\d{9}Z-[0-9a-z]+-\d+-[a-z0-9.-]+\.(?:allowed|denied|failed)$`)

// A folder has recordings. One goroutine uses it.
type folder struct {
	dir                string
	filesMax, bytesMax int64
	ageMax             time.Duration
	entries            []entry // the oldest first
	scanned            time.Time
	files, bytes       atomic.Int64 // of the entries
}

// An entry is a recording.
type entry struct {
	name  string // without the extension
	bytes int64  // of both files
}

func roundedUp(bytes int64) int64 { return (bytes + blockBytes - 1) / blockBytes * blockBytes }

// scan lists the recordings in the folder. It creates the folder if it does not exist, and removes
// unfinished files of killed processes.
func (f *folder) scan(now time.Time) error {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	sizes := make(map[string]int64)
	for _, file := range files {
		info, err := file.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // the file was removed meanwhile, or is no recording
		}
		if strings.HasPrefix(file.Name(), unfinished) && now.Sub(info.ModTime()) > scanEach {
			_ = os.Remove(filepath.Join(f.dir, file.Name())) // the next scan tries again
		}
		extension := filepath.Ext(file.Name())
		name := strings.TrimSuffix(file.Name(), extension)
		if (extension == ReviewExtension || extension == AnswerExtension) && ours.MatchString(name) {
			sizes[name] += roundedUp(info.Size())
		}
	}
	f.entries = f.entries[:0]
	total := int64(0)
	for name, bytes := range sizes {
		f.entries = append(f.entries, entry{name, bytes})
		total += bytes
	}
	slices.SortFunc(f.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	f.files.Store(int64(len(f.entries)))
	f.bytes.Store(total)
	f.scanned = now
	return nil
}

// makeRoom removes recordings that are too old, and the oldest others until there is room for one of so
// many bytes. It returns false if such a recording is larger than all recordings may be.
func (f *folder) makeRoom(bytes int64, now time.Time) bool {
	if bytes > f.bytesMax {
		return false
	}
	oldest := now.Add(-f.ageMax).UTC().Format(timeFormat)
	removed := 0
	for _, e := range f.entries {
		fits := f.files.Load() < f.filesMax && f.bytes.Load()+bytes <= f.bytesMax
		if fits && e.name >= oldest {
			break
		}
		f.remove(e)
		removed++
	}
	f.entries = append(f.entries[:0], f.entries[removed:]...)
	return true
}

func (f *folder) remove(e entry) {
	for _, extension := range [...]string{ReviewExtension, AnswerExtension} {
		_ = os.Remove(filepath.Join(f.dir, e.name+extension)) // after an error, the next scan finds it again
	}
	f.files.Add(-1)
	f.bytes.Add(-e.bytes)
}

// add writes a recording: first the answer and then the review, so that each review has its answer.
func (f *folder) add(name string, review, answer []byte, now time.Time) error {
	if f.scanned.IsZero() || now.Sub(f.scanned) >= scanEach {
		if err := f.scan(now); err != nil {
			return err
		}
	}
	bytes := roundedUp(int64(len(review))) + roundedUp(int64(len(answer)))
	if !f.makeRoom(bytes, now) {
		return fmt.Errorf("got a recording of %d bytes, want at most %d in all", bytes, f.bytesMax)
	}
	if err := f.write(name+AnswerExtension, answer); err != nil {
		return err
	}
	if err := f.write(name+ReviewExtension, review); err != nil {
		return errors.Join(err, os.Remove(filepath.Join(f.dir, name+AnswerExtension)))
	}
	f.entries = append(f.entries, entry{name, bytes})
	f.files.Add(1)
	f.bytes.Add(bytes)
	return nil
}

// write writes a file atomically: under another name, which it then changes.
func (f *folder) write(name string, content []byte) error {
	temporary := filepath.Join(f.dir, unfinished+name)
	err := os.WriteFile(temporary, content, 0o600)
	if err == nil {
		err = os.Rename(temporary, filepath.Join(f.dir, name))
	}
	if err != nil {
		if removed := os.Remove(temporary); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	return err
}

// run writes the reviews of the queue, until stop is called and the queue is empty.
func (r *Recorder) run() {
	defer close(r.ended)
	w := &writer{Recorder: r, process: strconv.FormatInt(time.Now().UnixNano(), 36)}
	ticker := time.NewTicker(scanEach)
	defer ticker.Stop()
	for {
		select {
		case j := <-r.queue:
			w.take(j)
		case now := <-ticker.C:
			if !r.folder.scanned.IsZero() && r.folder.scan(now) == nil {
				r.folder.makeRoom(0, now)
			}
		case <-r.stopped:
			for {
				select {
				case j := <-r.queue:
					w.take(j)
				default:
					return
				}
			}
		}
	}
}

// A writer writes the reviews of the queue.
type writer struct {
	*Recorder
	process string // distinguishes the files of several processes
	number  int
	retry   time.Time // when to write again after a failure
}

// take writes a review. After a panic, the recording is lost, and the process continues.
func (w *writer) take(j *Copy) {
	now := time.Now()
	defer w.release(j)
	defer func() {
		if v := recover(); v != nil {
			w.counted.broken.Inc()
			w.warn(now, fmt.Errorf("panic: %T", v))
		}
	}()
	if now.Before(w.retry) {
		w.counted.disk.Inc()
		return
	}
	name, review, answer, err := w.files(j)
	if err != nil {
		w.counted.broken.Inc()
		w.warn(now, err)
		return
	}
	if err := w.folder.add(name, review, answer, now); err != nil {
		w.retry = now.Add(diskPause)
		w.folder.scanned = time.Time{}
		w.counted.disk.Inc()
		w.warn(now, err)
		return
	}
	w.counted.written.Inc()
	if j.LeftOut != nil {
		w.counted.redacted.Inc()
	}
}

func (w *writer) warn(now time.Time, err error) {
	if now.Sub(w.warned) >= warnEach {
		w.warned = now
		w.o.Log.Warn("cannot record a review", "dir", w.o.Dir, "error", err.Error())
	}
}

// files returns the name and the contents of the files of a recording.
func (w *writer) files(j *Copy) (name string, review, answer []byte, err error) {
	review = j.Body
	if !w.o.Secrets {
		if review, j.LeftOut, err = Redact(j.Body); err != nil {
			return "", nil, nil, err
		}
	}
	if len(j.Response) > 0 {
		if j.Review = j.Response; len(j.LeftOut) > 0 {
			if j.Review, err = withoutPatch(j.Response); err != nil {
				return "", nil, nil, fmt.Errorf("recording: cannot read an answer: %w", err)
			}
		}
	}
	if answer, err = json.Marshal(&j.Answer); err != nil {
		return "", nil, nil, fmt.Errorf("recording: cannot write an answer: %w", err)
	}
	decoded := codec.Acquire()
	defer decoded.Release()
	if err := decoded.Decode(review); err != nil {
		return "", nil, nil, err
	}
	w.number++
	what := decoded.Resource().Resource + "-" + decoded.SubResource() + "-" + string(decoded.Operation())
	return fmt.Sprintf("%s-%s-%d-%s.%s", j.Time.Format(timeFormat), w.process, w.number, inName(what), j.Decision), review, answer, nil
}

// inName returns a text with dashes in place of characters that recordings do not have in their names.
func inName(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
	clean = strings.ReplaceAll(clean, "--", "-")
	return clean[:min(len(clean), nameBytesMax)]
}
