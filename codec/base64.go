package codec

// AppendBase64 appends src in standard base64 (RFC 4648 section 4), the encoding of
// the patch in an AdmissionResponse.
func AppendBase64(dst, src []byte) []byte { return appendBase64(dst, src) }
