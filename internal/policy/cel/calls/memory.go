package calls

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

const (
	// BytesMax is how many bytes of values the expressions of an evaluation may make in all.
	// The costliest text that an expression may make has 10,000,000 characters (PerCallLimit,
	// 0.1 for each), and the longest list 1,000,000 elements of 24 bytes. An evaluation may make
	// two of these at the same time. etcd stores objects of up to 1.5 MiB, of which this is 40
	// copies.
	BytesMax = 64 << 20

	// bytesFree is how many bytes an evaluation may make before the review asks the server
	// for memory. Nearly all evaluations make fewer.
	bytesFree = 64 << 10

	// KeptMax is how many bytes of values a review may keep for expressions that are equal. They count as
	// memory of the review, so the other half of bytesFree is for evaluations. A list of all containers of a
	// Pod takes some hundred bytes.
	KeptMax = bytesFree / 2

	// elementBytes is the memory of an element of a new list: 16 bytes for its slot, another 16
	// while the list grows, and up to 32 for a value that has to be allocated.
	elementBytes = 64

	// sharedBytes is the memory of an element whose value another list has allocated.
	sharedBytes = 16

	// textBytes is the memory of a string besides its characters.
	textBytes = 16

	// mapBytes is the memory of a map with up to eight entries, entryBytes that of each further entry.
	mapBytes   = 512
	entryBytes = 96

	// valueBytes is the memory of a value such as an IP address, checkBytes that of a step of
	// authorizer, and versionPartBytes that of a part of a version between two points.
	valueBytes       = 64
	checkBytes       = 256
	versionPartBytes = 96

	// messagesBytes is the memory of the errors that a format reports for a text.
	messagesBytes = 384

	// queryBytes is the memory of a parameter of a URL, which may have two bytes.
	queryBytes = 384

	// messageBytes is the memory of an error for each byte of the text in it: quoted, a byte
	// takes up to four, and each layer of the error copies it.
	messageBytes = 16

	// runeBytes is the memory of a character while a text is split into runes.
	runeBytes = 4
)

// made is the memory of a call: that of its result, and that which is free after the call.
type made struct{ result, passing int }

// makes has the functions whose results take memory, apart from distinct and format, which
// charge their results themselves. All others return a part of their arguments, or a value of
// constant size.
var makes = map[string]func(args []ref.Val) made{
	"@sortByAssociatedKeys":  sorted,
	"_+_":                    added,
	"add":                    quantities,
	"base64.decode":          copied,
	"base64.encode":          encoded,
	"bool":                   parsed,
	"bytes":                  copied,
	"cel.@mapInsert":         inserted,
	"charAt":                 ofRunes,
	"cidr":                   parsed,
	"containsCIDR":           parsed,
	"containsIP":             parsed,
	"double":                 parsed,
	"duration":               parsed,
	"fieldSelector":          selected,
	"findAll":                foundAll,
	"flatten":                flattened,
	"getEscapedPath":         escapedPath,
	"getQuery":               query,
	"group":                  checked,
	"hash.md5":               digested,
	"hash.sha1":              digested,
	"hash.sha256":            digested,
	"indexOf":                inRunes,
	"int":                    parsed,
	"ip":                     parsed,
	"ip.isCanonical":         parsed,
	"isCIDR":                 parsed,
	"isIP":                   parsed,
	"isQuantity":             parsed,
	"isSemver":               version,
	"isURL":                  urlOf,
	"join":                   joined,
	"jsonpatch.escapeKey":    escaped,
	"labelSelector":          selected,
	"lastIndexOf":            inRunes,
	"listObjToMap":           mapped,
	"lists.range":            ranged,
	"lowerAscii":             recased,
	"marshal":                marshaled,
	"masked":                 checked,
	"md5":                    digested,
	"name":                   checked,
	"namespace":              checked,
	"optional.unwrap":        relisted,
	"parse":                  decodedYAML,
	"path":                   checked,
	"quantity":               parsed,
	"replace":                replaced,
	"resource":               checked,
	"reverse":                relisted,
	"semver":                 version,
	"serviceAccount":         checked,
	"sha1":                   digested,
	"sha256":                 digested,
	"slice":                  sliced,
	"sort":                   sorted,
	"split":                  pieces,
	"string":                 copied,
	"strings.quote":          escaped,
	"sub":                    quantities,
	"subresource":            checked,
	"substring":              substring,
	"timestamp":              parsed,
	"transform.listObjToMap": mapped,
	"uint":                   parsed,
	"unmarshal":              decodedJSON,
	"unwrapOpt":              relisted,
	"upperAscii":             recased,
	"url":                    urlOf,
	"validate":               validated,
	"x509.decode":            decodedCertificate,
}

// Charges reports whether calls of a function charge the memory of their results.
func Charges(name string) bool { return makes[name] != nil || name == "distinct" || name == "format" }

// Take charges n bytes of a value that is about to be made. If it returns false, the value
// must not be made: the evaluation has exceeded BytesMax, or the review has an error because
// the server has no memory for it now.
func (l *Limits) Take(n int) bool {
	l.bytes += n
	return l.bytes <= l.granted || l.grow(l.bytes)
}

// Passing reports whether there is memory for n bytes that are free again when a call is done.
func (l *Limits) Passing(n int) bool {
	return l.bytes+n <= l.granted || l.grow(l.bytes+n)
}

// grow gets memory for n bytes in all, if the review has it. n is negative after an overflow.
func (l *Limits) grow(n int) bool {
	switch {
	case l.exhausted:
		return false
	case n > BytesMax || n < 0:
		l.exhausted = true
		return false
	case n <= bytesFree-l.Kept:
		l.granted = bytesFree - l.Kept
		return true
	}
	n = min(n+n/4, BytesMax)
	if !l.Review.Object.Makes(n + l.Kept) {
		return false
	}
	l.granted = n
	return true
}

// TakeText charges a new text of n bytes.
func (l *Limits) TakeText(n int) bool { return l.Take(n + textBytes) }

// TakeList charges a new list of n elements.
func (l *Limits) TakeList(n int) bool { return l.Take(elementBytes * max(n, 1)) }

// TakeMap charges a new map or struct of n members.
func (l *Limits) TakeMap(n int) bool { return l.Take(mapBytes + entryBytes*n) }

// IsSmall reports whether the evaluation has needed no memory of the review.
func (l *Limits) IsSmall() bool { return l.granted <= bytesFree }

// Repeat charges n bytes that a part of an evaluation made, which was small. It returns false if that
// part may end otherwise in this evaluation, or there is no memory.
func (l *Limits) Repeat(n int) bool {
	return !l.exhausted && l.bytes <= BytesMax-bytesFree && l.Take(n)
}

// Bytes returns how many bytes were charged.
func (l *Limits) Bytes() int { return l.bytes }

// IsExhausted reports whether the evaluation has exceeded BytesMax.
func (l *Limits) IsExhausted() bool { return l.exhausted }

// stop ends the expression in cel-go's interpreter, as its cost tracker does, if the evaluation
// has exceeded BytesMax.
func (l *Limits) stop() {
	if l.exhausted {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: memory limit exceeded"})
	}
}

// charge charges a call of a function.
func (l *Limits) charge(size func(args []ref.Val) made, args []ref.Val) bool {
	if size == nil {
		return true
	}
	m := size(args)
	return (m.passing == 0 || l.Passing(m.result+m.passing)) && (m.result == 0 || l.Take(m.result))
}

// lengthOf returns the bytes of a string or of bytes, 0 for other values.
func lengthOf(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

// elementsOf returns the number of elements of a list, and the memory of each in another list.
func elementsOf(v ref.Val) (n, each int) {
	list, ok := v.(traits.Lister)
	if !ok {
		return 0, 0
	}
	if _, isView := v.(*view.List); isView {
		return int(Size(list)), elementBytes
	}
	return int(Size(list)), sharedBytes
}

// multiplied returns n times each, or more than BytesMax if that overflows.
func multiplied(n, each int) int {
	if each != 0 && n > math.MaxInt32*1024/each {
		return BytesMax + 1
	}
	return n * each
}

func added(args []ref.Val) made {
	switch x := args[0].(type) {
	case types.String, types.Bytes:
		return made{result: lengthOf(x) + lengthOf(args[1]) + textBytes}
	case *view.List:
		n, each := elementsOf(x)
		return made{result: n*each + valueBytes}
	case traits.MutableLister: // the result of map so far; its new element was charged
		return made{}
	case traits.Lister:
		return made{result: valueBytes}
	}
	return made{}
}

// parsed is the memory of a value of constant size, or of an error that quotes the parsed text.
func parsed(args []ref.Val) made {
	n := 0
	for _, arg := range args {
		n += lengthOf(arg)
	}
	return made{result: valueBytes, passing: messageBytes * n}
}

// copied is the memory of a conversion of a text to bytes, or of any value to a text.
func copied(args []ref.Val) made {
	if _, isText := args[0].(types.String); isText && args[0].Type() == types.StringType {
		return made{result: len(args[0].(types.String))}
	}
	return made{result: lengthOf(args[0]) + valueBytes}
}

func recased(args []ref.Val) made {
	n := lengthOf(args[0])
	return made{result: n, passing: runeBytes * n}
}

// inRunes is the memory of a search in a text that is not UTF-8.
func inRunes(args []ref.Val) made {
	if len(args) < 2 {
		return made{}
	}
	return made{passing: runeBytes * (lengthOf(args[0]) + lengthOf(args[1]))}
}

func ofRunes(args []ref.Val) made { return made{passing: runeBytes * lengthOf(args[0])} }

// substring is the memory of as many characters as its two indices select.
func substring(args []ref.Val) made {
	n := lengthOf(args[0])
	result := n
	if len(args) > 2 {
		begin, _ := args[1].(types.Int)
		if end, ok := args[2].(types.Int); ok && begin >= 0 && end >= begin && end-begin < types.Int(n) {
			result = min(n, utf8.UTFMax*int(end-begin))
		}
	}
	return made{result: result, passing: runeBytes * n}
}

// escaped is the memory of a text in which a byte may become two, or the three of U+FFFD.
func escaped(args []ref.Val) made {
	n := lengthOf(args[0])
	return made{result: 3*n + textBytes, passing: 6 * n}
}

// count returns how often a text contains another one, but no more than the argument at index
// at says.
func count(args []ref.Val, at int) int {
	s, _ := args[0].(types.String) // other values are refused by cel-go
	of, _ := args[1].(types.String)
	n := strings.Count(string(s), string(of))
	if len(args) > at {
		if most, _ := args[at].(types.Int); most >= 0 {
			return int(min(types.Int(n), most))
		}
	}
	return n
}

func replaced(args []ref.Val) made {
	n := count(args, 3)
	if n == 0 {
		return made{}
	}
	return made{result: max(lengthOf(args[0])+multiplied(n, lengthOf(args[2]))-n*lengthOf(args[1]), 0)}
}

func pieces(args []ref.Val) made { return made{result: valueBytes + textBytes*(count(args, 2)+1)} }

// joined is the memory of the joined texts of a list, and of a builder while it grows. The
// JSON of a list is longer than its texts.
func joined(args []ref.Val) made {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return made{}
	}
	n, size := int(Size(list)), 0
	if len(args) > 1 {
		size = multiplied(n, lengthOf(args[1]))
	}
	if v, isView := list.(*view.List); isView {
		size += len(v.JSON().JSON())
	} else {
		for it := list.Iterator(); it.HasNext() == types.True && size <= BytesMax; {
			size += lengthOf(it.Next())
		}
	}
	return made{result: size + size/4, passing: 2 * size}
}

func relisted(args []ref.Val) made {
	n, each := elementsOf(args[0])
	return made{result: n * each, passing: 2 * n * sharedBytes}
}

func sorted(args []ref.Val) made {
	n, each := elementsOf(args[0])
	return made{result: n * each, passing: 2 * n * elementBytes}
}

func sliced(args []ref.Val) made {
	n, each := elementsOf(args[0])
	if len(args) > 2 {
		begin, _ := args[1].(types.Int)
		end, _ := args[2].(types.Int)
		if begin < 0 || end < begin || end > types.Int(n) {
			return made{}
		}
		n = int(end - begin)
	}
	return made{result: n * each, passing: 2 * n * sharedBytes}
}

// ranged is the memory of a list of integers: a slot and an allocation for each.
func ranged(args []ref.Val) made {
	n, _ := args[0].(types.Int)
	return made{result: multiplied(int(max(n, 0)), sharedBytes+8), passing: multiplied(int(max(n, 0)), sharedBytes)}
}

func flattened(args []ref.Val) made {
	depth := types.Int(1)
	if len(args) > 1 {
		depth, _ = args[1].(types.Int)
	}
	n, each := leaves(args[0], depth)
	return made{result: n * each, passing: 4 * n * sharedBytes}
}

// leaves counts the elements of a flattened list, until they exceed BytesMax.
func leaves(v ref.Val, depth types.Int) (n, each int) {
	n, each = elementsOf(v)
	list, ok := v.(traits.Lister)
	if !ok || depth <= 0 {
		return n, each
	}
	n = 0
	for it := list.Iterator(); it.HasNext() == types.True && n <= BytesMax/sharedBytes; {
		element := it.Next()
		if _, isList := element.(traits.Lister); !isList {
			n++
			continue
		}
		more, size := leaves(element, depth-1)
		n, each = n+more, max(each, size)
	}
	return n, each
}

// inserted is the memory of a map with new entries. An immutable map is copied.
func inserted(args []ref.Val) made {
	n := 1
	if _, ok := args[0].(traits.MutableMapper); !ok {
		n += int(Size(args[0]))
	}
	if len(args) == 2 {
		n += int(Size(args[1]))
	}
	return made{result: n * entryBytes, passing: n * entryBytes}
}

// foundAll is the memory of a match at each byte, the most that findAll may find.
func foundAll(args []ref.Val) made {
	n := lengthOf(args[0]) + 1
	if len(args) > 2 {
		if most, _ := args[2].(types.Int); most >= 0 {
			n = int(min(types.Int(n), most))
		}
	}
	return made{result: textBytes * n, passing: textBytes * n}
}

func validated(args []ref.Val) made {
	n := 0
	if len(args) > 1 {
		n = lengthOf(args[1])
	}
	return made{result: messagesBytes, passing: messageBytes*n + mapBytes}
}

func checked([]ref.Val) made { return made{result: checkBytes} }

// selected is the memory of a selector, in which two characters may be a requirement.
func selected(args []ref.Val) made {
	n := 0
	if len(args) > 1 {
		n = lengthOf(args[1])
	}
	return made{result: checkBytes + elementBytes*n, passing: 2 * elementBytes * n}
}

func version(args []ref.Val) made {
	s, _ := args[0].(types.String)
	parts := versionPartBytes * (strings.Count(string(s), ".") + 3)
	return made{result: parts + 2*len(s), passing: parts + messageBytes*len(s)}
}

// quantities is the memory of the sum or difference of quantities, whose exponents may differ
// by many digits.
func quantities(args []ref.Val) made {
	bytes := 2 * valueBytes
	for _, arg := range args {
		q, ok := arg.Value().(*resource.Quantity)
		if !ok {
			continue
		}
		if _, fits := q.AsInt64(); !fits {
			own := q.DeepCopy() // AsDec changes it
			dec := own.AsDec()
			bytes += dec.UnscaledBig().BitLen()/8 + int(max(dec.Scale(), -dec.Scale()))/2
		}
	}
	return made{result: bytes, passing: bytes}
}
