// Package codec reads AdmissionReviews and writes the answers to them, as
// close to the bytes as that can be done.
//
// A webhook gets several kilobytes of JSON for each decision and looks at a
// few values in them. Decoding them into Go types takes some hundred times
// longer than finding these values, so codec does only that: Decode scans the
// envelope (k8s.io/api/admission/v1 types.go, v1 and v1beta1), Get finds a
// value by its path and remembers what it passed, edits lie beside the text and
// are seen by later reads, and AppendResponse writes the answer. None of it
// allocates once its memory has grown to what requests need. The package knows
// JSON and the envelope, and nothing about the objects in it; package diff
// makes the patch of the edits.
//
// # Ownership
//
// The bytes given to Decode or Reset are read in place: they are never written
// to, and must not change until the Review is released, or the Object reset.
//
// Whatever is read from a Review or Object (Values, strings, iterators, Edits,
// Warnings, Response.Patch) is a view of these bytes or of memory that is used
// again. It is valid until the Review is released or decoded into again, or the
// Object reset. Nothing that outlives the handler may hold a view: no goroutine,
// no request that several callers share, no key or value of a map or cache, no
// error that is kept. Use strings.Clone to keep a string. Some functions look as
// if they copied and do not: resource.ParseQuantity keeps the text it parses,
// DeepCopy shares strings, and schema.GroupVersion.String may return a field.
//
// What is given to edits is copied.
//
// Acquire and Release belong into the same function. A Review must not be used
// after Release, nor released twice. Reviews and Objects must not be used by
// two goroutines at once, even for reading: reads remember where things are.
//
// Built with the tag poison, Decode and Reset read a copy of their bytes. Release
// and Reset overwrite that copy and all arenas with 0xdb, and do not use them
// again: a view that was kept is a run of bytes that is not UTF-8. Such a build
// allocates; an ordinary one does nothing for this.
//
// # What is validated
//
// Decode checks the envelope: JSON from the first bracket to the last, the kind
// and API version, a uid, and the JSON type of each field. Nothing else is
// checked before it is read:
//
//   - If the last object of the request stands where kube-apiserver writes it, the
//     text that kube-apiserver writes behind it, at the end of the body, says where
//     it ends; the object is not even skipped. A field of the request that should
//     stand before the objects and stands behind one of them is not found then.
//   - A value that nobody reads is skipped, not validated. Objects and arrays
//     are skipped by counting brackets outside of strings, to any depth.
//   - Members and elements are checked for the punctuation between them as far
//     as a read passes them, and literals and numbers for their first byte.
//   - A string, and the name of a member that is yielded, is validated when it
//     is read: control characters, unknown escapes and bytes that are not UTF-8
//     are errors. encoding/json puts U+FFFD in place of the latter. Half of an
//     escaped surrogate pair is U+FFFD in both.
//   - A number is a run of the bytes that numbers are made of. Int64 is false
//     for one that strconv does not take.
//   - A value of another kind than the one asked for, and null, read as a
//     missing one does; that is no error.
//
// The first fault stays with its Object, and Review.Err finds it: reads after
// it go on as if the values were missing, edits do nothing. A new value given
// to an edit is validated whole (as encoding/json does, and UTF-8), for a patch
// that kube-apiserver cannot decode fails the user's request.
//
// Names are compared exactly: "UID" is not "uid", as in Kubernetes and not as
// in encoding/json.
//
// Of two members of one name in an object, Get returns the first, Members
// yields both, Set leaves one of them, and Remove none. Of two fields of one
// name in the envelope, the last one counts, and nothing of the others is
// merged into it; so it is in kinds and resources. kube-apiserver writes no such
// thing.
//
// # Native code
//
// Objects and arrays are skipped, and members of large ones looked up, by the
// native code of github.com/bytedance/sonic (ast.Searcher with ValidateJSON off),
// and escapes are undone by its unquote package. Native code has no
// bounds checks of its own. TestGuardPage shows that it does not read behind
// the end of a text, or write behind the end of a buffer: it places altered and
// cut recordings right before memory that cannot be touched, a million a run.
// The same test is why new values are validated by encoding/json: sonic's
// validation reads up to four bytes behind a text that ends within a literal.
package codec
