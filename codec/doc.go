// Package codec reads AdmissionReviews directly from their bytes, and writes
// the answers.
//
// A webhook gets several kilobytes of JSON for each decision and reads a few
// values of them. Decoding all into Go types takes hundreds of times longer
// than finding these values, so codec only finds them. Decode scans the envelope
// (k8s.io/api/admission/v1 types.go, v1 and v1beta1). Get finds a value by its
// path, and stores positions for later reads. Edits do not change the text: they
// are stored apart from it, and later reads see them. AppendResponse writes the
// answer. Nothing allocates as soon as the reused memory is large enough for the
// requests. The package knows JSON and the envelope, but not the kinds of the
// objects. Package diff builds the patch from the edits.
//
// # Nodes and edits
//
// An Object has the text of the document, an arena with the text of edits, and a
// tree of nodes. A node is a member, an element or the document. It has two offsets,
// counted through the text and then through the arena: where its value begins now,
// and where the value began that it had in the text.
//
// Reads make nodes, as far as they look: Get("spec", "containers") makes one for each
// member of the document up to spec, and of spec up to containers, and none for what
// is in containers. The next read goes over these nodes instead of the text.
//
// An edit appends the new text to the arena and makes the node's value begin there.
// A member that an edit adds is a node without a value in the text; a removed one is
// a node without a value now. All nodes above are marked as edited. So Edits, and
// AppendPatch of package diff, only follow the marks and compare two offsets: an
// object without edits costs them nothing. Example_nodes prints
// the tree of a Pod after a read and after edits, and the patch.
//
// The files: object.go has the Object, value.go and iterator.go have reads, node*.go the
// tree, edit*.go the edits (edit_target.go finds the node, edit_nodes.go changes it,
// edit_text.go has the arena, edit_list.go lists edits). scan.go finds where values
// begin and end, predicted.go does so faster for text that kube-apiserver wrote.
// review*.go have the envelope and the answer.
//
// # Ownership
//
// The bytes given to Decode or Reset are read in place: they are never written
// to, and must not change until the Review is released, or the Object reset.
//
// Whatever is read from a Review or Object (Values, strings, iterators, Edits,
// Warnings, Response.Patch) is a view of these bytes or of memory that is reused.
// It is valid until the Review is released or decoded into again, or the
// Object reset. Nothing that outlives the handler may hold a view: no goroutine,
// no request that several callers share, no key or value of a map or cache, no
// error that is kept. Use strings.Clone to keep a string. Some functions look as
// if they copied and do not: resource.ParseQuantity keeps the text it parses,
// DeepCopy shares strings, and schema.GroupVersion.String may return a field.
//
// The arguments of edits are copied.
//
// Call Acquire and Release in the same function. A Review must not be used after
// Release, nor released twice. Two goroutines must not use a Review or an Object
// at the same time, even for reading, because reads store positions.
//
// With the build tag poison, Decode and Reset read a copy of their bytes. Release
// and Reset overwrite the copy and all arenas with 0xdb, and never use them again,
// so a view that was kept by mistake is not valid UTF-8. Such a build allocates;
// other builds are not affected.
//
// # What is validated
//
// Decode checks the envelope: JSON from the first bracket to the last, the kind
// and API version, a uid, and the JSON type of each field. Nothing else is
// checked before it is read:
//
//   - If the last object of the request is where kube-apiserver writes it, the text
//     that kube-apiserver writes after it, at the end of the body, marks its end,
//     and the object is not scanned. A field that kube-apiserver writes before the
//     objects is not found then if it follows one of them.
//   - A value that nobody reads is skipped, not validated. Objects and arrays
//     are skipped by counting brackets outside of strings, to any depth.
//   - Where a read passes members and elements, it checks the punctuation between
//     them, and the first byte of literals and numbers.
//   - Strings and names of members are validated when they are read: control
//     characters, unknown escapes and bytes that are not UTF-8 are errors.
//     encoding/json replaces the latter by U+FFFD. Both replace half of an escaped
//     surrogate pair by U+FFFD.
//   - A number is a sequence of the bytes that occur in numbers. Int64 returns
//     false for a number that strconv does not accept.
//   - A value of another kind than the requested one, and null, read as a missing
//     value. This is not an error.
//
// An Object keeps its first error, and Review.Err returns it. Later reads return
// missing values, and later edits do nothing. The new value of an edit is validated
// completely (as by encoding/json, and as UTF-8), because a patch that kube-apiserver
// cannot decode fails the user's request.
//
// Names are compared exactly: "UID" is not "uid", as in Kubernetes and not as
// in encoding/json.
//
// If two members of an object have the same name, Get returns the first, Members
// yields both, Set leaves one of them, and Remove none. If two fields of the envelope,
// or of a kind or resource in it, have the same name, the last one counts, and nothing
// of the others is merged into it. kube-apiserver writes no duplicate names.
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
