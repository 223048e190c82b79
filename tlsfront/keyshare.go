package tlsfront

import (
	"io"

	"filippo.io/edwards25519"
)

// Numbers of FIPS 203 for ML-KEM-768 (§8, table 2).
const (
	mlkemQ      = 3329
	mlkemN      = 256
	mlkemK      = 3
	mlkemDU     = 10 // bits per coefficient of u
	mlkemDV     = 4  // bits per coefficient of v
	mlkemCipher = mlkemN * (mlkemK*mlkemDU + mlkemDV) / 8
)

// shareMaker makes the server's half of a key exchange: values that an observer cannot tell from genuine ones, though
// no key comes of them. Our clients don't look at the share, and an observer cannot compute with it.
//
// Owned by one Gate; its fields are scratch, so that making a share allocates nothing.
type shareMaker struct {
	scalar edwards25519.Scalar
	point  edwards25519.Point
	seed   [edwardsScalarLen]byte
	block  [384]byte // random bytes to draw coefficients from
	left   int       // 12-bit numbers of block not used yet, at its end
}

const edwardsScalarLen = 32

// appendX25519 appends a public key of X25519 (RFC 7748 §5): a point of the curve's prime-order subgroup. Random bytes
// would be on the curve every other time only. The Edwards form multiplies the base point from a table; the result is
// the same as X25519's ladder over u = 9, in half the time.
func (m *shareMaker) appendX25519(dst []byte, rnd io.Reader) []byte {
	fill(rnd, m.seed[:])
	if _, err := m.scalar.SetBytesWithClamping(m.seed[:]); err != nil {
		panic("tlsfront: internal error: " + err.Error()) // only for another length
	}
	return append(dst, m.point.ScalarBaseMult(&m.scalar).BytesMontgomery()...)
}

// appendMLKEM appends what a ciphertext of ML-KEM-768 looks like (FIPS 203, algorithm 14). Its coefficients are
// uniform modulo q to everybody without the private key; that is the assumption ML-KEM rests on. So drawing uniform ones
// and compressing them gives the same distribution without the client's key, without garbage and reproducibly. Random
// bytes do not: q is no multiple of 2^10, so 257 of the 1,024 values of u stand for four coefficients and the others
// for three, which shows in a single hello.
func (m *shareMaker) appendMLKEM(dst []byte, rnd io.Reader) []byte {
	dst = m.appendPolynomials(dst, rnd, mlkemK, mlkemDU)
	return m.appendPolynomials(dst, rnd, 1, mlkemDV)
}

// appendPolynomials appends n polynomials, compressed to d bits per coefficient and packed from the low bit on
// (FIPS 203, algorithm 5).
func (m *shareMaker) appendPolynomials(dst []byte, rnd io.Reader, n, d int) []byte {
	var acc, have uint
	for range n * mlkemN {
		acc |= compress(m.coefficient(rnd), uint(d)) << have
		for have += uint(d); have >= 8; have -= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
		}
	}
	return dst
}

// compress maps x modulo q to the nearest of 2^d evenly spaced values (FIPS 203, §4.2.1).
func compress(x, d uint) uint {
	return (x<<d + mlkemQ/2) / mlkemQ & (1<<d - 1)
}

// coefficient draws a uniform number below q by rejection: exact, and 1.2 draws of 12 bits on average.
func (m *shareMaker) coefficient(rnd io.Reader) uint {
	for {
		if m.left == 0 {
			fill(rnd, m.block[:])
			m.left = len(m.block) * 8 / 12
		}
		m.left--
		at := m.left * 3 / 2
		pair := uint(m.block[at]) | uint(m.block[at+1])<<8
		if x := pair >> (m.left % 2 * 4) & 0xfff; x < mlkemQ {
			return x
		}
	}
}

// fill reads random bytes. A random source does not fail; one that does leaves nothing that could be sent.
func fill(rnd io.Reader, b []byte) {
	if _, err := io.ReadFull(rnd, b); err != nil {
		panic("tlsfront: internal error: random source: " + err.Error())
	}
}
