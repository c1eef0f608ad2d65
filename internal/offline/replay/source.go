package replay

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/recording"
)

const (
	// fileBytesMax is the maximum size of a review, an answer or a line of an audit log: that of a review
	// which serve accepts.
	fileBytesMax = 32 << 20

	// sniffBytes is the length of the beginning of a file from which its type is determined.
	sniffBytes = 512
)

// A record is a review to repeat.
type record struct {
	file     string
	line     int
	tree     files.Tree        // of an unread file
	body     []byte            // the AdmissionReview
	answer   *recording.Answer // nil if it is unknown
	isPart   bool              // the answer has only the decision and, if denied, the message
	manifest *manifest.Item    // instead of body
	fault    error             // why there is no review
	isUnread bool              // whether load must read the file
	lacks    string            // the part of the review that the source does not contain
}

// A source finds the records in the files and folders that a user names. send returns false to stop.
type source struct {
	tree  func(path string) files.Tree
	stdin io.Reader
	send  func(record) bool
}

// read sends the records of a path. It sends a file that may be a review unread; the worker loads it.
func (s *source) read(path string) bool {
	if path == "-" {
		return s.stream(manifest.Stdin, s.stdin)
	}
	tree := s.tree(path)
	info, err := tree.Stat(path)
	if err != nil {
		return s.send(record{file: path, fault: err})
	}
	if !info.IsDir() {
		return s.file(tree, path)
	}
	found := false
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			if !s.send(record{file: name, fault: err}) {
				return fs.SkipAll
			}
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains(extensions, filepath.Ext(name)) && !strings.HasPrefix(entry.Name(), "."):
			found = true
			if !s.file(tree, name) {
				return fs.SkipAll
			}
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("the folder has no file that ends in one of %q", extensions)
	}
	if err != nil {
		return s.send(record{file: path, fault: err})
	}
	return true
}

// extensions are the extensions of the files that are read in folders.
var extensions = append([]string{".jsonl", ".log", ".tar"}, manifest.Extensions...)

// file sends the records of a file, or an unread record if the file may be a recorded review.
func (s *source) file(tree files.Tree, name string) bool {
	if filepath.Ext(name) == recording.ReviewExtension {
		return s.send(record{file: name, tree: tree, isUnread: true})
	}
	return s.open(tree, name)
}

// open sends the records of a file.
func (s *source) open(tree files.Tree, name string) bool {
	f, err := tree.Open(name)
	if err != nil {
		return s.send(record{file: name, fault: err})
	}
	defer f.Close()
	return s.stream(name, f)
}

func isReview(text []byte) bool {
	return bytes.Contains(text[:min(len(text), sniffBytes)], []byte(`"AdmissionReview"`))
}

// load reads the file of an unread record, and its file with the answer. It returns false if the file is
// no review, or cannot be read.
func (r *record) load() bool {
	var err error
	if r.body, err = r.tree.ReadAtMost(r.file, fileBytesMax); err != nil || !isReview(r.body) {
		return false
	}
	name := strings.TrimSuffix(r.file, recording.ReviewExtension) + recording.AnswerExtension
	text, err := r.tree.ReadAtMost(name, fileBytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err == nil {
		r.answer, err = parseAnswer(text)
	}
	if err != nil {
		r.fault = fmt.Errorf("cannot read the answer %s: %w", filepath.Base(name), err)
	}
	return true
}

func parseAnswer(text []byte) (*recording.Answer, error) {
	answer := new(recording.Answer)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, answer); err != nil {
		return nil, err
	}
	if !slices.Contains([]recording.Decision{recording.Allowed, recording.Denied, recording.Failed}, answer.Decision) {
		return nil, fmt.Errorf("decision: got %q, want allowed, denied or failed", answer.Decision)
	}
	return answer, nil
}

// stream sends the records of a tar, an audit log, a review or manifests.
func (s *source) stream(name string, r io.Reader) bool {
	buffered := bufio.NewReaderSize(r, 64<<10)
	head, err := buffered.Peek(sniffBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return s.send(record{file: name, fault: err})
	}
	switch {
	case len(head) > 262 && string(head[257:262]) == "ustar":
		return s.tar(name, buffered)
	case bytes.Contains(head, []byte(`"audit.k8s.io/`)):
		return s.audit(name, buffered)
	}
	content, err := io.ReadAll(io.LimitReader(buffered, fileBytesMax+1))
	if err == nil && len(content) > fileBytesMax {
		err = fmt.Errorf("got more than %d bytes, the maximum of a file that is neither a tar nor an audit log", fileBytesMax)
	}
	if err != nil {
		return s.send(record{file: name, fault: err})
	}
	if isReview(head) {
		return s.send(record{file: name, body: content})
	}
	items := manifest.Parse(name, content)
	for i := range items {
		item := &items[i]
		r := record{file: item.File, line: item.Line, manifest: item}
		if item.Fault != nil {
			r.fault = item.Fault.Err
		}
		if !s.send(r) {
			return false
		}
	}
	return true
}

// tar sends the recordings in an archive of "fastadmit recordings", in which each answer comes before its
// review. It unpacks nothing to the disk.
func (s *source) tar(name string, r io.Reader) bool {
	archive := tar.NewReader(r)
	answerOf, answer := "", []byte(nil)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return s.send(record{file: name, fault: fmt.Errorf("cannot read the archive: %w", err)})
		}
		extension := filepath.Ext(header.Name)
		if header.Typeflag != tar.TypeReg || extension != recording.AnswerExtension && extension != recording.ReviewExtension {
			continue
		}
		file := name + ":" + header.Name
		content, err := readAtMost(archive, header.Size)
		if err != nil {
			if !s.send(record{file: file, fault: err}) {
				return false
			}
			continue
		}
		base := strings.TrimSuffix(header.Name, extension)
		if extension == recording.AnswerExtension {
			answerOf, answer = base, content
			continue
		}
		found := record{file: file, body: content}
		if answerOf == base {
			found.answer, found.fault = parseAnswer(answer)
		}
		if !s.send(found) {
			return false
		}
	}
}

func readAtMost(r io.Reader, size int64) ([]byte, error) {
	if size > fileBytesMax {
		return nil, fmt.Errorf("got %d bytes, want at most %d", size, fileBytesMax)
	}
	return io.ReadAll(r)
}

// audit sends the reviews in an audit log of kube-apiserver. Each line is an event.
func (s *source) audit(name string, r *bufio.Reader) bool {
	for number := 1; ; number++ {
		text, err := readLine(r)
		if len(bytes.TrimSpace(text)) > 0 || err != nil && !errors.Is(err, io.EOF) {
			found, ok := parseEvent(text, err)
			found.file, found.line = name, number
			if ok && !s.send(found) {
				return false
			}
		}
		if err != nil && !errors.Is(err, errLongLine) {
			return true // the end, or a read error, which was sent as a fault
		}
	}
}

var errLongLine = fmt.Errorf("got a line of more than %d bytes, the maximum", fileBytesMax)

// readLine returns the next line. It skips a line that is too long and returns errLongLine.
func readLine(r *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > fileBytesMax; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, errLongLine // at the end of r, the next call returns io.EOF
		}
		return line, err
	}
}

// raw returns a value as JSON, null for none.
func raw(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	return text
}
