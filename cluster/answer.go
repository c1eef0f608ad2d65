package cluster

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/httpbound"
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

type streamedKey struct{}

// streamed returns a context for a request whose answer is read one object at a time.
func streamed(ctx context.Context) context.Context {
	return context.WithValue(ctx, streamedKey{}, true)
}

// BoundAnswers bounds the answers to requests of clients with this configuration. An answer that is
// read as a whole may have 16 MiB; of one with an HTTP error, 64 KiB are read. Watches are not
// bounded.
func BoundAnswers(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return httpbound.Bound(next, &httpbound.Limits{
			BytesMax: eventBytesMax, MemoryOfByte: memoryOfByte, FreeBytes: freeBytes, Growth: 2,
			IsStream: func(request *http.Request) bool {
				return request.Context().Value(streamedKey{}) != nil || request.URL.Query().Get("watch") != ""
			},
		})
	})
}
