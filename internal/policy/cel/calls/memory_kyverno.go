package calls

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

const (
	// dataBytes is the memory of decoded JSON for each byte of its text: a map of one entry takes some 340, its text 6.
	dataBytes = 64
	// nodeBytes is the memory of parsing YAML for each byte of its text: a node takes some 200 in each of the two
	// parsers, its text 2.
	nodeBytes = 200
	// certificateBytes is the memory of a decoded certificate for each byte of its text: fields repeat parts of it in
	// base64, and an extension of 9 bytes becomes a map.
	certificateBytes = 128
	// quotedBytes is how many bytes a byte may become in JSON, and scalarBytes are those of a value that is no text.
	quotedBytes, scalarBytes = 6, 40
	// nativeBytes is the memory of the Go value that encoding/json writes, for each byte that it writes.
	nativeBytes = 10
)

// digested is the memory of a digest in hexadecimal, 64 characters at most, and of a copy of the text.
func digested(args []ref.Val) made {
	return made{result: valueBytes + textBytes, passing: lengthOf(args[0])}
}

func decodedJSON(args []ref.Val) made {
	n := lengthOf(args[1])
	return made{result: dataBytes * n, passing: n}
}

// decodedYAML is the memory of a text whose aliases at most double it.
func decodedYAML(args []ref.Val) made {
	n := lengthOf(args[1])
	return made{result: 2 * dataBytes * n, passing: nodeBytes * n}
}

func decodedCertificate(args []ref.Val) made {
	return made{result: certificateBytes * lengthOf(args[0])}
}

func marshaled(args []ref.Val) made {
	n := written(args[1], 0)
	return made{result: n, passing: nativeBytes * n}
}

// written adds to n how many bytes the JSON of a value has at most. It stops when they exceed BytesMax: a value may
// have the same part very often.
func written(v ref.Val, n int) int {
	switch v := v.(type) {
	case *view.Object:
		return n + quotedBytes*len(v.JSON().JSON())
	case *view.List:
		return n + quotedBytes*len(v.JSON().JSON())
	case types.String, types.Bytes:
		return n + quotedBytes*lengthOf(v) + scalarBytes
	case traits.Mapper:
		if v.Type() != types.MapType { // as in Decoded
			return n + scalarBytes
		}
		for it := v.Iterator(); it.HasNext() == types.True && n <= BytesMax; {
			key := it.Next()
			n = written(v.Get(key), written(key, n))
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && n <= BytesMax; {
			n = written(it.Next(), n)
		}
	}
	return n + scalarBytes
}

func encoded(args []ref.Val) made { return made{result: 2*lengthOf(args[0]) + textBytes} }

func mapped(args []ref.Val) made {
	return made{result: mapBytes + multiplied(int(Size(args[0])), entryBytes)}
}
