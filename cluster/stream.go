package cluster

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kjson "sigs.k8s.io/json"
)

// eventBytesMax is how long an event of a watch, or an object of a list, may be. etcd
// stores objects of at most 1.5 MiB (--max-request-bytes); as JSON, in which a byte can
// become six, an object has 9 MiB at most.
const eventBytesMax = 16 << 20

// errTooLong ends a watch or list with a longer object. No API server that stores its
// objects in etcd has one.
var errTooLong = fmt.Errorf("the API server sent an object of more than %d bytes, the maximum", eventBytesMax)

// An eventReader reads the events of a watch from the body of its response, one at a time.
type eventReader struct {
	in    *bufio.Reader
	frame []byte
}

func newEventReader(body io.Reader) *eventReader { return &eventReader{in: bufio.NewReader(body)} }

// next returns the next event. Its object is valid until next is called again. The error
// is io.EOF or io.ErrUnexpectedEOF at the end.
func (r *eventReader) next() (event metav1.WatchEvent, err error) {
	if cap(r.frame) > smallBytesMax {
		r.frame = nil
	}
	r.frame = r.frame[:0]
	first, err := r.in.Peek(1)
	for err == nil && (first[0] == '\n' || first[0] == ' ') { // between two JSON documents
		_, _ = r.in.Discard(1)
		first, err = r.in.Peek(1)
	}
	if err != nil {
		return event, err
	}
	if first[0] == '{' {
		if err = r.readJSON(); err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(r.frame, &event)
		}
		return event, err
	}
	if err = r.readMessage(); err == nil {
		err = event.Unmarshal(r.frame)
	}
	return event, err
}

// readMessage reads a message behind its length, which has four bytes.
func (r *eventReader) readMessage() error {
	var prefix [4]byte
	if _, err := io.ReadFull(r.in, prefix[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(prefix[:])
	if length > eventBytesMax {
		return errTooLong
	}
	var err error
	r.frame, err = readFull(r.in, r.frame, int(length))
	return err
}

// readFull reads n bytes into buffer. It grows the buffer with what has been read, so that
// a length alone takes no memory.
func readFull(in io.Reader, buffer []byte, n int) ([]byte, error) {
	into := bytes.NewBuffer(buffer[:0])
	read, err := io.CopyN(into, in, int64(n))
	if errors.Is(err, io.EOF) && read < int64(n) {
		err = io.ErrUnexpectedEOF
	}
	return into.Bytes(), err
}

// readJSON reads a JSON object.
func (r *eventReader) readJSON() error {
	depth, inString, escaped := 0, false, false
	for {
		b, err := r.in.ReadByte()
		if err != nil {
			return unexpected(err)
		}
		if r.frame = append(r.frame, b); len(r.frame) > eventBytesMax {
			return errTooLong
		}
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = b == '\\', b != '"'
		case b == '"':
			inString = true
		case b == '{':
			depth++
		case b == '}':
			if depth--; depth == 0 {
				return nil
			}
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// receive returns the next event, with an object that has arrived or, if its type is
// Error, a Status.
func (s *store) receive(from *eventReader) (watch.Event, error) {
	event, err := from.next()
	if err != nil {
		return watch.Event{}, err
	}
	raw, isMessage, err := unwrap(event.Object.Raw)
	if err != nil {
		return watch.Event{}, err
	}
	got := watch.Event{Type: watch.EventType(event.Type)}
	switch got.Type {
	case watch.Error:
		status := new(metav1.Status)
		got.Object, err = status, unmarshal(raw, isMessage, status)
	case watch.Bookmark:
		got.Object, err = decodeMeta(raw, isMessage, bookmarkMask)
	case watch.Deleted:
		got.Object, err = decodeMeta(raw, isMessage, identityMask)
	case watch.Added, watch.Modified:
		got.Object, err = s.decode(raw, isMessage)
	default:
		err = fmt.Errorf("got an event of the type %q, want ADDED, MODIFIED, DELETED, BOOKMARK or ERROR", event.Type)
	}
	return got, err
}

// readList reads a list from the body of its response, one object at a time, and puts the
// objects on the shelf for them.
func (s *store) readList(body io.Reader) (*listOf[*arrived], error) {
	list := new(listOf[*arrived])
	return list, s.readItems(body, list, func(raw []byte, isMessage bool) error {
		a, err := s.decode(raw, isMessage)
		if err != nil {
			return err
		}
		s.shelve(a)
		list.Items = append(list.Items, a)
		return nil
	})
}

// readItems calls item for each object of a list in the body of its response. raw is valid
// until item returns.
func (s *store) readItems(body io.Reader, list *listOf[*arrived], item func(raw []byte, isMessage bool) error) error {
	in := bufio.NewReader(body)
	prefix, err := in.Peek(len(messagePrefix))
	if err != nil {
		return unexpected(err)
	}
	if bytes.Equal(prefix, messagePrefix) {
		_, _ = in.Discard(len(prefix))
		err = readMessages(in, list, item)
	} else {
		err = readDocument(in, list, item)
	}
	if err == nil && list.Kind != s.kind.listName {
		err = fmt.Errorf("got a %q, want a %s", list.Kind, s.kind.listName)
	}
	return unexpected(err)
}

// readMessages reads a list in protobuf: the list is field 2 of an Unknown (k8s.io/apimachinery
// pkg/runtime/generated.proto), and has its metadata in field 1, the objects in field 2.
func readMessages(in *bufio.Reader, into *listOf[*arrived], item func(raw []byte, isMessage bool) error) error {
	const list = 2
	complete := false
	err := readFields(in, func(number protowire.Number, length uint64) (bool, error) {
		if number == 1 && length <= smallBytesMax {
			var what runtime.TypeMeta
			text, err := readFull(in, nil, int(length))
			if err == nil {
				err = what.Unmarshal(text)
			}
			into.APIVersion, into.Kind = what.APIVersion, what.Kind
			return true, err
		}
		if number != list {
			return false, nil
		}
		limited := &io.LimitedReader{R: in, N: int64(min(length, 1<<62))}
		inside := bufio.NewReader(limited)
		var buffer []byte
		err := readFields(inside, func(number protowire.Number, length uint64) (bool, error) {
			if number != 1 && number != list {
				return false, nil
			}
			if length > eventBytesMax {
				return true, errTooLong
			}
			if cap(buffer) > smallBytesMax {
				buffer = nil
			}
			var err error
			if buffer, err = readFull(inside, buffer, int(length)); err != nil {
				return true, err
			}
			if number == 1 {
				return true, into.ListMeta.Unmarshal(buffer)
			}
			return true, item(buffer, true)
		})
		if err == nil && limited.N > 0 { // without this, a list that was cut would seem complete
			err = io.ErrUnexpectedEOF
		}
		complete = err == nil
		return true, err
	})
	if err == nil && !complete {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readFields calls field for each field that has a length. It skips those that field did
// not read, and all others.
func readFields(in *bufio.Reader, field func(number protowire.Number, length uint64) (read bool, err error)) error {
	for {
		tag, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		number, kind := protowire.DecodeTag(tag)
		length := uint64(0)
		switch kind {
		case protowire.VarintType, protowire.BytesType:
			if length, err = binary.ReadUvarint(in); err != nil {
				return unexpected(err)
			}
		case protowire.Fixed32Type:
			_, err = in.Discard(4)
		case protowire.Fixed64Type:
			_, err = in.Discard(8)
		default:
			err = fmt.Errorf("got a field of the wire type %d", kind)
		}
		if err != nil {
			return unexpected(err)
		}
		if kind != protowire.BytesType {
			continue
		}
		read, err := field(number, length)
		if err == nil && !read {
			_, err = io.CopyN(io.Discard, in, int64(min(length, 1<<62)))
		}
		if err != nil {
			return unexpected(err)
		}
	}
}

// A boundedReader fails with errTooLong after left bytes.
type boundedReader struct {
	in   io.Reader
	left int
}

// Read implements io.Reader.
func (r *boundedReader) Read(into []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLong
	}
	n, err := r.in.Read(into[:min(len(into), r.left)])
	r.left -= n
	return n, err
}

// readDocument reads a list in JSON.
func readDocument(in io.Reader, into *listOf[*arrived], item func(raw []byte, isMessage bool) error) error {
	bounded := &boundedReader{in, eventBytesMax}
	tokens := kjson.NewDecoderCaseSensitivePreserveInts(bounded)
	value := func(into any) error {
		bounded.left = eventBytesMax
		return tokens.Decode(into)
	}
	if err := open(tokens, '{'); err != nil {
		return err
	}
	for tokens.More() {
		name, err := tokens.Token()
		if err != nil {
			return err
		}
		switch name {
		case "kind":
			err = value(&into.Kind)
		case "metadata":
			err = value(&into.ListMeta)
		case "items":
			err = readArray(tokens, value, item)
		default:
			var skipped json.RawMessage
			err = value(&skipped)
		}
		if err != nil {
			return err
		}
	}
	_, err := tokens.Token() // without this, a list that was cut would seem complete
	return err
}

// readArray reads the objects of a list. null is a list without objects.
func readArray(tokens kjson.Decoder, value func(into any) error, item func(raw []byte, isMessage bool) error) error {
	begin, err := tokens.Token()
	if begin == nil || err != nil {
		return err
	}
	if begin != json.Delim('[') {
		return fmt.Errorf("items: got %v, want a list", begin)
	}
	for tokens.More() {
		var raw json.RawMessage
		if err := value(&raw); err != nil {
			return err
		}
		if err := item(raw, false); err != nil {
			return err
		}
	}
	_, err = tokens.Token()
	return err
}

// open reads the begin of an object.
func open(tokens kjson.Decoder, want json.Delim) error {
	begin, err := tokens.Token()
	if err == nil && begin != want {
		err = fmt.Errorf("got %v, want a list of the API", begin)
	}
	return err
}
