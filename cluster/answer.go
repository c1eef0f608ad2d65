package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// liveBytesMax is the maximum memory of the objects of a live list: as much as a review may
	// take for its own object. PodSecurity lists the Pods of a namespace. The largest object that
	// etcd stores takes 1.5 MiB, and an ordinary Pod some 20 KiB, so 3,200 ordinary Pods fit.
	// PodSecurity looks at 3,000.
	liveBytesMax = codec.MemoryMax

	// memoryOfByte is how many bytes of memory a byte of an object may take while it is decoded.
	// An empty toleration has two bytes in protobuf. It takes 72 bytes of memory, and half of that
	// in addition while its list grows.
	memoryOfByte = 50

	// freeBytes is the length of an answer up to which it borrows no memory. Most objects have less.
	freeBytes = 8 << 10

	// errorBytesMax is how many bytes of an answer with an HTTP error are read. Messages repeat it.
	errorBytesMax = 64 << 10
)

var errListTooLarge = fmt.Errorf("the objects take more than %d bytes, the maximum", liveBytesMax)

// A liveList has the objects of a live list.
type liveList struct {
	items []runtime.Object
	bytes int64 // the memory of items
}

// GetObjectKind implements runtime.Object.
func (l *liveList) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes a list.
func (l *liveList) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// askLive lists objects with the fields of the kind. loan grows with their memory.
func (s *store) askLive(ctx context.Context, namespace string, loan *codec.Loan) (*liveList, error) {
	body, err := s.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(s.kind.resource).Stream(streamed(ctx))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list := new(liveList)
	err = s.readItems(body, new(listOf[*arrived]), func(raw []byte, isMessage bool) error {
		masked, err := s.kind.mask.apply(raw, isMessage, len(raw))
		if err != nil {
			return err
		}
		return s.addLive(ctx, list, masked, isMessage, loan)
	})
	return list, err
}

// addLive decodes an object of a live list.
func (s *store) addLive(ctx context.Context, list *liveList, masked []byte, isMessage bool, loan *codec.Loan) error {
	if takes := list.bytes + int64(len(masked))*memoryOfByte; takes > freeBytes*memoryOfByte {
		if err := loan.Grow(ctx, takes); err != nil {
			return err
		}
	}
	object := s.kind.object.DeepCopyObject()
	if err := unmarshal(masked, isMessage, object); err != nil {
		return err
	}
	if list.bytes += memoryOf(object.(Object)); list.bytes > liveBytesMax {
		return errListTooLarge
	}
	list.items = append(list.items, object)
	return nil
}

// keepAnswer borrows the memory of an answer until the end of the review whose context is ctx.
func keepAnswer(ctx context.Context, bytes int64) error {
	if bytes <= freeBytes*memoryOfByte {
		return nil
	}
	return codec.NewLoan(ctx).Keep(bytes)
}

type (
	loanKey     struct{}
	streamedKey struct{}
)

// lentBy returns a context for a request whose answer takes its memory from loan.
func lentBy(ctx context.Context, loan *codec.Loan) context.Context {
	return context.WithValue(ctx, loanKey{}, loan)
}

// streamed returns a context for a request whose answer is read one object at a time.
func streamed(ctx context.Context) context.Context {
	return context.WithValue(ctx, streamedKey{}, true)
}

// BoundAnswers bounds the answers to requests of clients with this configuration. An answer that is
// read as a whole may have 16 MiB; of one with an HTTP error, 64 KiB are read. Watches are not
// bounded.
func BoundAnswers(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &boundedTransport{next} })
}

type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if response == nil || response.Body == nil || response.StatusCode == http.StatusSwitchingProtocols {
		return response, err
	}
	ctx := request.Context()
	whole := ctx.Value(streamedKey{}) == nil && request.URL.Query().Get("watch") == ""
	switch {
	case response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent:
		response.Body = &cutBody{io.LimitReader(response.Body, errorBytesMax), response.Body}
	case whole:
		loan, _ := ctx.Value(loanKey{}).(*codec.Loan)
		response.Body = &wholeBody{ReadCloser: response.Body, ctx: ctx, loan: loan}
	}
	return response, err
}

// WrappedRoundTripper returns the inner transport, for client-go.
func (t *boundedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// A cutBody ends early.
type cutBody struct {
	io.Reader
	io.Closer
}

// A wholeBody is an answer that is read as a whole.
type wholeBody struct {
	io.ReadCloser
	ctx  context.Context
	loan *codec.Loan // nil for none
	read int64
}

// Read implements io.Reader.
func (b *wholeBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.read += int64(n); b.read > eventBytesMax {
		return 0, errTooLong
	}
	if b.loan != nil && b.read > freeBytes {
		// The loan doubles, so that it has few parts.
		if takes := b.read * memoryOfByte; takes > b.loan.Bytes() {
			if fault := b.loan.Grow(b.ctx, max(takes, 2*b.loan.Bytes())); fault != nil {
				return 0, fault
			}
		}
	}
	return n, err
}
