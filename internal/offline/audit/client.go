package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// attemptsMax bounds the requests for a page that bring no new object. With the
	// waits between them, that is some 30 seconds, in which a kube-apiserver
	// restarts.
	attemptsMax = 6

	// pageMax bounds how long a page may take. kube-apiserver ends a request after
	// 60 s by itself (--request-timeout).
	pageMax = 2 * time.Minute
)

// retries are the waits between attempts.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: attemptsMax, Cap: 10 * time.Second}

// A client speaks JSON with the API server.
type client struct {
	rest    *rest.RESTClient
	limit   int64 // objects of a page
	retries wait.Backoff
}

func newClient(config *rest.Config, limit int64) (*client, error) {
	config = rest.CopyConfig(config)
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // the Status of an error
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{} // it would write them to stderr
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for the API server: %w", err)
	}
	return &client{c, limit, retries}, nil
}

// Ask sends one request to the API server and returns an error if it fails.
func Ask(ctx context.Context, config *rest.Config) error {
	c, err := newClient(config, DefaultPageSize)
	if err == nil {
		_, err = c.get(ctx, "/api", new(metav1.APIVersions))
	}
	if err != nil {
		return fmt.Errorf("cannot ask the API server: %w", err)
	}
	return nil
}

// get decodes what the API server has at a path. Found is false if there is
// nothing.
func (c *client) get(ctx context.Context, path string, into any) (found bool, err error) {
	text, err := c.rest.Get().AbsPath(path).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, into)
	}
	return true, err
}

// listMeta has the fields of metav1.ListMeta that an audit reads.
type listMeta struct {
	Continue           string `json:"continue"`
	RemainingItemCount int64  `json:"remainingItemCount"`
}

// A listing is a list of the objects at a path, a page at a time, which is never
// in memory as a whole.
type listing struct {
	path   string
	params url.Values
	// visit is called with each object, in the order of their keys. It owns the
	// text.
	visit func(text json.RawMessage) error
	// page, if it is set, is called after each page with how many objects follow;
	// 0 if the API server does not say.
	page func(remaining int64)

	last  string // the key of the last object that was visited
	again bool   // something is read once more: objects up to last are skipped
}

// list visits all objects. It continues after the last visited object when a page
// breaks off, when kube-apiserver asks to come back later, and when the list expires
// because etcd was compacted. The objects that follow may then be newer.
func (c *client) list(ctx context.Context, l *listing) error {
	waits, attempts, token := c.retries, 0, ""
	for {
		before := l.last
		meta, err := c.page(ctx, l, token)
		switch {
		case err == nil:
			token = meta.Continue
			if l.page != nil {
				l.page(meta.RemainingItemCount)
			}
			if token == "" {
				return nil
			}
			waits, attempts = c.retries, 0
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		status, isVisited, isFinal := classify(err)
		if isVisited || isFinal {
			return err
		}
		if l.last != before {
			waits, attempts = c.retries, 0
		}
		if attempts++; attempts > attemptsMax {
			return err
		}
		l.again = true
		if status != nil && (apierrors.IsResourceExpired(status) || apierrors.IsGone(status)) {
			token = status.ErrStatus.Continue // which goes on behind what was seen; empty begins anew
			continue
		}
		select {
		case <-time.After(waits.Step()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A visitError is an error of the function visit.
type visitError struct{ error }

func (e *visitError) Unwrap() error { return e.error }

// classify returns the API server's answer if the error has one, and reports whether
// the function visit returned the error, and whether another attempt is useless.
func classify(err error) (status *apierrors.StatusError, isVisited, isFinal bool) {
	if _, ok := errors.AsType[*visitError](err); ok {
		return nil, true, true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return nil, false, false // of the connection
	}
	code := status.ErrStatus.Code
	isFinal = code >= 400 && code < 500 && !apierrors.IsTooManyRequests(status) && !apierrors.IsTimeout(status) &&
		!apierrors.IsResourceExpired(status) && !apierrors.IsGone(status)
	return status, false, isFinal
}

// page visits the objects of a page, and returns the metadata of the list.
func (c *client) page(ctx context.Context, l *listing, token string) (meta listMeta, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageMax)
	defer cancel()
	request := c.rest.Get().AbsPath(l.path).Param("limit", strconv.FormatInt(c.limit, 10))
	for name, values := range l.params {
		for _, value := range values {
			request.Param(name, value)
		}
	}
	if token != "" {
		request.Param("continue", token)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return meta, err
	}
	defer body.Close()
	return meta, l.read(body, &meta)
}

// read decodes a list while it arrives. Typed lists have their metadata first, lists of
// custom resources have it last.
func (l *listing) read(body io.Reader, meta *listMeta) error {
	d := json.NewDecoder(body)
	if err := want(d, json.Delim('{')); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		switch key {
		case "metadata":
			err = d.Decode(meta)
		case "items":
			err = l.items(d)
		default:
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return err
		}
	}
	return want(d, json.Delim('}'))
}

func (l *listing) items(d *json.Decoder) error {
	begin, err := d.Token()
	if err != nil || begin == nil { // null, an empty list
		return err
	}
	if begin != json.Delim('[') {
		return fmt.Errorf("got %v for the items of a list, want an array", begin)
	}
	for d.More() {
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			return err
		}
		key := keyOf(text)
		if l.again && key <= l.last {
			continue
		}
		l.again = false
		if err := l.visit(text); err != nil {
			return &visitError{err}
		}
		l.last = key
	}
	return want(d, json.Delim(']'))
}

func want(d *json.Decoder, delimiter json.Delim) error {
	got, err := d.Token()
	if err == nil && got != delimiter {
		err = fmt.Errorf("got %v in a list, want %v", got, delimiter)
	}
	return err
}

// A head identifies an object in a list.
type head struct{ namespace, name string }

func headOf(text []byte) head {
	object := heads.Get().(*codec.Object)
	object.Reset(text) // its review reports errors
	metadata := object.Get("metadata")
	found := head{strings.Clone(metadata.Get("namespace").String()), strings.Clone(metadata.Get("name").String())}
	object.Reset(nil) // the pool must not reference the text
	heads.Put(object)
	return found
}

var heads = sync.Pool{New: func() any { return new(codec.Object) }}

// keyOf returns the key by which etcd, and so a list, sorts an object.
func keyOf(text []byte) string {
	h := headOf(text)
	if h.namespace == "" {
		return h.name
	}
	return h.namespace + "/" + h.name
}
